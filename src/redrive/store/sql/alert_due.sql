-- alert_due: for each org that has open tasks, for how many seconds its oldest one is due (NULL: none is), and the same of what workers could do
-- (relays wait for hubs). $1 now, $2 at most so many streams; `streams`: the number of the last one that was looked at. One look-up for each
-- stream, as survey.sql makes them, however many tasks it has; tasks that are being tried stand before those that wait, and are stepped
-- over. What is held, or behind another one, is not in the index.
WITH RECURSIVE clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
stream AS (
  (SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) AS place, t.attempts > 0 AS is_retry,
          t.due_at, 1 AS n
     FROM redrive.task t
    WHERE t.live AND t.behind IS NULL AND (t.lease_ends_at IS NULL OR t.lease_ends_at <= (SELECT now FROM clock))
    ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
    LIMIT 1)
  UNION ALL
  SELECT n.*, s.n + 1
    FROM stream s
   CROSS JOIN LATERAL (
     SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), t.attempts > 0, t.due_at
       FROM redrive.task t
      WHERE t.live AND t.behind IS NULL AND (t.lease_ends_at IS NULL OR t.lease_ends_at <= (SELECT now FROM clock))
        AND (t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0))
            > (s.queue, s.org_id, s.place, s.is_retry)
      ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
      LIMIT 1) n
   WHERE s.n < $2)
SELECT s.org_id, extract(epoch FROM clock.now - min(s.due_at) FILTER (WHERE s.due_at <= clock.now))::float8 AS due_age_s,
       extract(epoch FROM clock.now - min(s.due_at) FILTER (WHERE s.due_at <= clock.now AND s.queue <> 'relay'))::float8 AS work_age_s,
       max(s.n) AS streams
  FROM clock, stream s GROUP BY s.org_id, clock.now;
