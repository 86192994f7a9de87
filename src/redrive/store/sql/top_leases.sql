-- top_leases: how many tasks each worker has in hand, as far as they are among the first $2 of each of the first $1 streams, and among the first $3 of all
-- of them. What is leased was due before what waits, so it stands in front, and $2 is as much as all workers together have room for; the counter
-- task.leased says how many there are in all.
WITH RECURSIVE stream AS (
  (SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) AS place, t.attempts > 0 AS is_retry, 1 AS n
     FROM redrive.task t
    WHERE t.live AND t.behind IS NULL
    ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
    LIMIT 1)
  UNION ALL
  SELECT n.*, s.n + 1
    FROM stream s
   CROSS JOIN LATERAL (
     SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), t.attempts > 0
       FROM redrive.task t
      WHERE t.live AND t.behind IS NULL
        AND (t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0))
            > (s.queue, s.org_id, s.place, s.is_retry)
      ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
      LIMIT 1) n
   WHERE s.n < $1)
SELECT a.worker_id, count(*)::int AS n
  FROM (
    SELECT f.worker_id
      FROM stream s
     CROSS JOIN LATERAL (
       SELECT t.worker_id FROM redrive.task t
        WHERE t.live AND t.behind IS NULL AND t.queue = s.queue AND t.org_id = s.org_id
          AND coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) = s.place AND (t.attempts > 0) = s.is_retry
        ORDER BY coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), t.due_at, t.id LIMIT $2) f  -- see claim.sql
     LIMIT $3) a
 WHERE a.worker_id IS NOT NULL
 GROUP BY a.worker_id;
