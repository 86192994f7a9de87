-- survey: the streams of these queues that have live tasks, and when the first one of each is due.
-- $1 now (NULL: the database's clock), $2 queues, $3 at most. One look-up for each stream, however many tasks it has: the index
-- is stepped through from one stream to the next. The first task may be under way: then the time is that of the past at
-- which it was due. Streams in which all waits for a person (due at infinity) are left out.
-- Of relays, which are claimed where a hub is connected, also what needs none: a lease that ran out (of the first task: what is
-- leased is due before what waits), and an endpoint that was deleted.
WITH RECURSIVE clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
stream AS (
  SELECT q.queue, f.*
    FROM unnest($2::text[]) AS q(queue)
   CROSS JOIN LATERAL (
     SELECT t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) AS place, t.attempts > 0 AS is_retry,
            t.due_at, t.lease_ends_at
       FROM redrive.task t
      WHERE t.queue = q.queue AND t.live AND t.behind IS NULL
      ORDER BY t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
      LIMIT 1) f
  UNION ALL
  SELECT s.queue, n.*
    FROM stream s
   CROSS JOIN LATERAL (
     SELECT t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), t.attempts > 0, t.due_at, t.lease_ends_at
       FROM redrive.task t
      WHERE t.queue = s.queue AND t.live AND t.behind IS NULL
        AND (t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0))
            > (s.org_id, s.place, s.is_retry)
      ORDER BY t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
      LIMIT 1) n)
SELECT s.queue, s.org_id, s.place, s.is_retry, s.due_at, clock.now, s.lease_ends_at <= clock.now AS is_lost,
       CASE WHEN s.queue = 'relay' THEN EXISTS (
         SELECT FROM redrive.endpoint e WHERE e.org_id = s.org_id AND e.id = s.place AND e.deleted_at IS NOT NULL) END AS is_deleted
  FROM clock LEFT JOIN (SELECT * FROM stream LIMIT $3) s ON s.due_at < 'infinity';
