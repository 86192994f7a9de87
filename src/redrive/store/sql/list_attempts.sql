-- list_attempts: the newest tries of an event's tasks or of one task, in the order of time; `older`: there are more. A lease
-- that is open is a try without an end. `method`: of a workflow's step, what it calls with. $1 org, $2 event or NULL, $3 task or NULL.
WITH newest AS (
  SELECT t.id AS task_id, t.endpoint_id, t.kind, t.event_type, t.event_id, a.*
    FROM redrive.task t
   CROSS JOIN LATERAL (
    SELECT a.fence, a.generation, a.number, a.result, a.worker_id, a.started_at,
           a.ended_at, a.status_code, a.category, a.possible_duplicate, a.truncated, a.error_message, a.error_stack, a.url,
           a.request_headers, a.response_headers, a.response_body, a.late_at, a.late_result
      FROM redrive.attempt a WHERE a.org_id = t.org_id AND a.task_id = t.id ORDER BY a.fence DESC LIMIT 1001) a
   WHERE t.org_id = $1 AND ($2::uuid IS NULL OR t.event_id = $2) AND ($3::uuid IS NULL OR t.id = $3)
  UNION ALL
  SELECT t.id, t.endpoint_id, t.kind, t.event_type, t.event_id, t.fence, t.generation, t.attempts + 1, 'open', t.worker_id,
         t.leased_at, NULL, NULL, NULL, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM redrive.task t
   WHERE t.org_id = $1 AND ($2::uuid IS NULL OR t.event_id = $2) AND ($3::uuid IS NULL OR t.id = $3) AND t.state = 'leased'
   ORDER BY started_at DESC, task_id DESC, fence DESC LIMIT 1001),
shown AS (
  SELECT n.*, count(*) OVER () > 1000 AS older FROM newest n ORDER BY started_at DESC, task_id DESC, fence DESC LIMIT 1000),
steps AS MATERIALIZED (
  SELECT t.id, t.run_id, w.shown::jsonb #>> ARRAY['steps', t.step::text, 'method'] AS method
    FROM redrive.task t
    JOIN redrive.run r ON r.org_id = t.org_id AND r.id = t.run_id
    JOIN redrive.workflow w ON w.org_id = r.org_id AND w.id = r.workflow_id
   WHERE t.org_id = $1 AND ($2::uuid IS NULL OR t.event_id = $2) AND ($3::uuid IS NULL OR t.id = $3))
SELECT n.*, s.run_id, s.method FROM shown n LEFT JOIN steps s ON s.id = n.task_id ORDER BY n.started_at, n.task_id, n.fence;
