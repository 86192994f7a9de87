-- doctor_due: of each stream (an endpoint's first tries, or its retries, in one queue) the task that has been due longest, over all orgs. $1 now
-- (NULL: the database's clock), $2 streams at most, $3 org (NULL: all). One look-up for each, however many tasks it has, as survey.sql. Left out is what waits for
-- something else than a worker: its endpoint's breaker, limit or hub; of those only a lease that ended counts, which needs nobody but a worker.
WITH RECURSIVE clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
stream AS (
  (SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) AS place, t.attempts > 0 AS is_retry,
          t.due_at, t.lease_ends_at
     FROM redrive.task t
    WHERE t.live AND t.behind IS NULL
    ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
    LIMIT 1)
  UNION ALL
  SELECT n.*
    FROM stream s
   CROSS JOIN LATERAL (
     SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), t.attempts > 0, t.due_at, t.lease_ends_at
       FROM redrive.task t
      WHERE t.live AND t.behind IS NULL
        AND (t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0))
            > (s.queue, s.org_id, s.place, s.is_retry)
      ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
      LIMIT 1) n)
SELECT s.queue, o.name AS org, e.name AS endpoint, s.is_retry,
       extract(epoch FROM clock.now - coalesce(s.lease_ends_at, s.due_at))::float8 AS since_s
  FROM (SELECT * FROM stream LIMIT $2) s
 CROSS JOIN clock
  LEFT JOIN redrive.org o ON o.org_id = s.org_id
  LEFT JOIN redrive.endpoint e ON e.org_id = s.org_id AND e.id = s.place
  LEFT JOIN redrive.endpoint_state b ON b.org_id = s.org_id AND b.endpoint_id = s.place
 WHERE coalesce(s.lease_ends_at, s.due_at) <= clock.now AND ($3::uuid IS NULL OR s.org_id = $3)
   AND (s.lease_ends_at IS NOT NULL
        OR NOT coalesce(e.kind = 'relay' AND e.deleted_at IS NULL OR b.breaker <> 'closed', false)
           AND e.max_in_flight IS NULL AND e.rate_per_s IS NULL)
 ORDER BY coalesce(s.lease_ends_at, s.due_at) LIMIT 200;
