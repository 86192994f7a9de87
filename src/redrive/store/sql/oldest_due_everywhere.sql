-- oldest_due_everywhere: for how many seconds the task of all orgs is due that waits longest; 0: none is. $1 now (NULL: the database's clock),
-- $2 streams to look at, at most. Steps from stream to stream as survey.sql does, of whatever queue, and takes of each the first task that
-- nobody holds: it passes over those under way, which are no more than workers may have. Asked at a pace (store/installation.py).
WITH RECURSIVE clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
stream AS (
  (SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) AS place, t.attempts > 0 AS is_retry
     FROM redrive.task t
    WHERE t.live AND t.behind IS NULL
    ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
    LIMIT 1)
  UNION ALL
  SELECT n.*
    FROM stream s
   CROSS JOIN LATERAL (
     SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), t.attempts > 0
       FROM redrive.task t
      WHERE t.live AND t.behind IS NULL
        AND (t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0))
            > (s.queue, s.org_id, s.place, s.is_retry)
      ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
      LIMIT 1) n)
SELECT coalesce(max(extract(epoch FROM clock.now - f.due_at)), 0)::float8 AS age_s
  FROM clock, (SELECT * FROM stream LIMIT $2) s
 CROSS JOIN LATERAL (
   SELECT t.due_at FROM redrive.task t
    WHERE t.queue = s.queue AND t.org_id = s.org_id
      AND coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) = s.place AND (t.attempts > 0) = s.is_retry
      AND t.live AND t.behind IS NULL AND t.due_at <= (SELECT now FROM clock)
      AND (t.state = 'waiting' OR t.lease_ends_at <= (SELECT now FROM clock))
    ORDER BY coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), t.due_at, t.id LIMIT 1) f;
