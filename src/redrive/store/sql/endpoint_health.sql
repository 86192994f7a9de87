-- endpoint_health: how endpoints have done lately, and what waits or lies for them. $1 org, $2 endpoints, $3 tasks looked at of
-- each, $4 tries of each, $5 tries of one task, $6 how far each thing is counted, $7 entries of the retry queue looked at, $8 now.
--
-- Tries are found through the newest tasks, of which those never tried are passed over ($3: behind a backlog there may be none
-- left); a try in the queue of old tasks is not among them. No index knows the retry queue by endpoint: it is read once for all
-- of them, the soonest $7. (BETWEEN: where one endpoint has most of the tasks, the planner would take = for always true, and go
-- through the tasks of all endpoints to find the newest of each.)
WITH wanted AS MATERIALIZED (
  SELECT DISTINCT u.id FROM unnest($2::uuid[]) AS u(id)),
tried AS MATERIALIZED (
  SELECT w.id, a.result, a.category, a.error_message, a.ended_at, a.took_ms,
         row_number() OVER (PARTITION BY w.id ORDER BY a.ended_at DESC, a.task_id DESC, a.fence DESC) AS place
    FROM wanted w
   CROSS JOIN LATERAL (
     SELECT n.id FROM (
       SELECT t.endpoint_id, t.id, t.fence FROM redrive.task t
        WHERE t.org_id = $1 AND t.endpoint_id BETWEEN w.id AND w.id
        ORDER BY t.endpoint_id DESC, t.id DESC LIMIT $3) n
      WHERE n.fence > 0 ORDER BY n.endpoint_id DESC, n.id DESC LIMIT $4) t
   CROSS JOIN LATERAL (
     SELECT f.task_id, f.fence, f.result, f.category, f.error_message, f.ended_at,
            extract(epoch FROM f.ended_at - f.started_at)::float8 * 1000 AS took_ms
       FROM redrive.attempt f
      WHERE f.org_id = $1 AND f.task_id = t.id AND f.result <> 'released'
      ORDER BY f.fence DESC LIMIT $5) a),
told AS MATERIALIZED (
  SELECT r.id, count(*)::int AS tries, count(*) FILTER (WHERE r.result = 'succeeded')::int AS succeeded,
         percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY r.took_ms) FILTER (WHERE r.result <> 'lost') AS took_ms,
         max(r.ended_at) FILTER (WHERE r.result = 'succeeded') AS last_success_at,
         coalesce(min(r.place) FILTER (WHERE r.result = 'succeeded') - 1, count(*))::int AS failures_in_a_row,
         min(r.place) FILTER (WHERE r.result <> 'succeeded') AS last_failure
    FROM tried r WHERE r.place <= $4 GROUP BY r.id),
queued AS MATERIALIZED (
  SELECT q.endpoint_id AS id, count(*)::int AS n
    FROM (SELECT t.endpoint_id FROM redrive.task t
           WHERE t.org_id = $1 AND t.open AND t.attempts > 0
           ORDER BY t.due_at, t.id LIMIT $7) q
   GROUP BY q.endpoint_id)
SELECT w.id, coalesce(h.tries, 0) AS tries, coalesce(h.succeeded, 0) AS succeeded, h.took_ms[1] AS p50_ms, h.took_ms[2] AS p95_ms,
       h.last_success_at, coalesce(h.failures_in_a_row, 0) AS failures_in_a_row, f.ended_at AS last_failure_at,
       f.category AS last_failure_category, f.error_message AS last_failure_message, d.n AS dead,
       redrive.held_by_endpoint($1, w.id, $8::timestamptz, $6)::int AS held, coalesce(q.n, 0) AS retrying, (SELECT coalesce(sum(n), 0) FROM queued) < $7 AS saw_queue
  FROM wanted w
  LEFT JOIN told h ON h.id = w.id
  LEFT JOIN tried f ON f.id = w.id AND f.place = h.last_failure
  LEFT JOIN queued q ON q.id = w.id
 CROSS JOIN LATERAL (
   SELECT count(*)::int AS n FROM (
     SELECT FROM redrive.dead_letter l
      WHERE l.org_id = $1 AND l.state = (SELECT 'open') AND l.endpoint_id = w.id LIMIT $6) c) d;
