-- expire_pick: the next open tasks of an org by age, and whether each has outlived its policy while it waited. What is kept from
-- being tried is left alone: what is shut (its endpoint, its org, the installation), what waits behind a breaker that is not closed or
-- in a halted lane. When that is lifted, its time begins anew. Nothing is locked yet.
-- $1 org, $2 now, $3 received until, $4 and $5 after (an event's tasks come together), $6 limit.
WITH seen AS MATERIALIZED (
  SELECT t.id, t.event_id, t.received_at, t.begun_at, t.state, t.kind, t.queue, t.endpoint_id, t.policy_id, t.attempts, t.generation, t.lane
    FROM redrive.task t
   WHERE t.org_id = $1 AND t.open AND t.received_at <= $3 AND (t.received_at, t.event_id) > ($4::timestamptz, $5::uuid)
   ORDER BY t.received_at, t.event_id FETCH FIRST $6 ROWS WITH TIES),
shut AS MATERIALIZED (
  SELECT o.paused_at IS NOT NULL OR i.paused_at IS NOT NULL AS whole, greatest(o.resumed_at, i.resumed_at) AS resumed_at
    FROM redrive.org o, redrive.installation i WHERE o.org_id = $1 AND i.singleton)
SELECT s.id, s.event_id, s.received_at, s.begun_at, s.kind, coalesce(s.endpoint_id::text, s.queue) AS place,
       s.attempts - CASE WHEN s.generation > 0 THEN 1 ELSE 0 END AS tries, m.max_age_s,
       coalesce(s.state = 'waiting' AND NOT shut.whole AND l.halted_at IS NULL
                AND greatest(s.begun_at, shut.resumed_at, e.resumed_at, b.breaker_since, l.resumed_at)
                    + make_interval(secs => m.max_age_s) <= $2::timestamptz
                AND NOT ((e.disabled_at IS NOT NULL OR e.paused_at IS NOT NULL OR b.breaker <> 'closed') AND e.deleted_at IS NULL) IS TRUE,
                false) AS expired
  FROM shut CROSS JOIN seen s
  JOIN redrive.policy p ON p.org_id = $1 AND p.id = s.policy_id
 CROSS JOIN LATERAL (SELECT (p.spec ->> 'max_age_s')::float8 AS max_age_s) m
  LEFT JOIN redrive.endpoint e ON e.org_id = $1 AND e.id = s.endpoint_id
  LEFT JOIN redrive.endpoint_state b ON b.org_id = $1 AND b.endpoint_id = s.endpoint_id
  LEFT JOIN redrive.lane l ON l.org_id = $1 AND l.lane = s.lane
 ORDER BY s.received_at, s.event_id, s.id;
