-- doctor_due: of each stream (an endpoint's first tries, or its retries, in one queue) that has something due the task that has been due longest, over
-- all orgs. $1 now (NULL: the database's clock), $2 streams at most, $3 org (NULL: all), $4 the id just below it. One look-up for each, however many tasks
-- it has, as survey.sql; tasks that are being tried stand before those that wait, and are stepped over. Towards one org it jumps: from what lies before it
-- in a queue to its own, and from what lies behind to the next queue. `waits_for_more`: not for a worker alone, but for its endpoint's breaker, limit or
-- hub; a lease that ended needs nobody but a worker.
WITH RECURSIVE clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
stream AS (
  (SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) AS place, t.attempts > 0 AS is_retry,
          t.due_at, t.lease_ends_at
     FROM redrive.task t
    WHERE t.live AND t.behind IS NULL AND (t.lease_ends_at IS NULL OR t.lease_ends_at <= (SELECT now FROM clock))
    ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
    LIMIT 1)
  UNION ALL
  SELECT n.*
    FROM stream s
   CROSS JOIN LATERAL (
     SELECT CASE WHEN s.org_id < $3 THEN $4::uuid WHEN s.org_id > $3 THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff' ELSE s.org_id END AS org_id,
            CASE WHEN s.org_id <> $3 THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff' ELSE s.place END AS place,
            coalesce(s.org_id <> $3, false) OR s.is_retry AS is_retry) step
   CROSS JOIN LATERAL (
     SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), t.attempts > 0, t.due_at, t.lease_ends_at
       FROM redrive.task t
      WHERE t.live AND t.behind IS NULL AND (t.lease_ends_at IS NULL OR t.lease_ends_at <= (SELECT now FROM clock))
        AND (t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0))
            > (s.queue, step.org_id, step.place, step.is_retry)
      ORDER BY t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (t.attempts > 0), t.due_at, t.id
      LIMIT 1) n)
SELECT s.queue, o.name AS org, e.name AS endpoint, s.is_retry, extract(epoch FROM clock.now - s.due_at)::float8 AS since_s,
       s.lease_ends_at IS NULL AND (coalesce(e.kind = 'relay' AND e.deleted_at IS NULL OR b.breaker <> 'closed', false)
                                    OR e.max_in_flight IS NOT NULL OR e.rate_per_s IS NOT NULL) AS waits_for_more
  FROM (SELECT * FROM stream LIMIT $2) s
 CROSS JOIN clock
  LEFT JOIN redrive.org o ON o.org_id = s.org_id
  LEFT JOIN redrive.endpoint e ON e.org_id = s.org_id AND e.id = s.place
  LEFT JOIN redrive.endpoint_state b ON b.org_id = s.org_id AND b.endpoint_id = s.place
 WHERE s.due_at <= clock.now AND ($3::uuid IS NULL OR s.org_id = $3)
 ORDER BY s.due_at;
