-- expire_pick: the next open tasks of an org by age, and whether each is older than its policy allows. Its age counts from when it was
-- received or last redriven, whatever kept it from being tried: no worker, no hub, a breaker, a disabled endpoint. Only a pause (of its
-- endpoint, its org or the installation) and a halted lane suspend that; what had grown too old when a person ended them gets one try,
-- for which it may wait as long as its policy allows once more. Nothing is locked yet.
-- $1 org, $2 now, $3 received until, $4 and $5 after (an event's tasks come together), $6 limit.
WITH seen AS MATERIALIZED (
  SELECT t.id, t.event_id, t.received_at, t.begun_at, t.state, t.kind, t.queue, t.endpoint_id, t.policy_id, t.lane,
         t.last_failed_at, t.state = 'leased' AS lost
    FROM redrive.task t
   WHERE t.org_id = $1 AND t.open AND t.received_at <= $3 AND (t.received_at, t.event_id) > ($4::timestamptz, $5::uuid)
     AND (t.lease_ends_at IS NULL OR t.lease_ends_at <= $2::timestamptz)
   ORDER BY t.received_at, t.event_id FETCH FIRST $6 ROWS WITH TIES),
shut AS MATERIALIZED (
  SELECT o.paused_at IS NOT NULL OR i.paused_at IS NOT NULL AS whole, greatest(o.resumed_at, i.resumed_at) AS resumed_at
    FROM redrive.org o, redrive.installation i WHERE o.org_id = $1 AND i.singleton)
SELECT s.id, s.event_id, s.received_at, s.begun_at, s.kind, coalesce(s.endpoint_id::text, s.queue) AS place,
       s.lost, m.max_age_s,
       coalesce(NOT shut.whole AND l.halted_at IS NULL AND (e.paused_at IS NULL OR e.deleted_at IS NOT NULL)
                AND s.begun_at + m.max_age <= $2::timestamptz
                AND (s.begun_at + m.max_age <= r.resumed_at AND coalesce(s.last_failed_at < r.resumed_at, true)
                     AND r.resumed_at + m.max_age > $2::timestamptz) IS NOT TRUE,
                false) AS expired
  FROM shut CROSS JOIN seen s
  JOIN redrive.policy p ON p.org_id = $1 AND p.id = s.policy_id
 CROSS JOIN LATERAL (
   SELECT (p.spec ->> 'max_age_s')::float8 AS max_age_s, make_interval(secs => (p.spec ->> 'max_age_s')::float8) AS max_age) m
  LEFT JOIN redrive.endpoint e ON e.org_id = $1 AND e.id = s.endpoint_id
  LEFT JOIN redrive.lane l ON l.org_id = $1 AND l.lane = s.lane
 CROSS JOIN LATERAL (SELECT greatest(shut.resumed_at, e.resumed_at, l.resumed_at) AS resumed_at) r
 ORDER BY s.received_at, s.event_id, s.id;
