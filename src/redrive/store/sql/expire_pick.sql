-- expire_pick: the next open tasks of an org by age, and whether each has outlived its policy while it waited. What is shut (its
-- endpoint, its org, the installation) does not age: it is held as soon as a claim meets it. Nothing is locked yet.
-- $1 org, $2 now, $3 received until, $4 and $5 after (an event's tasks come together), $6 limit.
WITH seen AS MATERIALIZED (
  SELECT t.id, t.event_id, t.received_at, t.begun_at, t.state, t.kind, t.queue, t.endpoint_id, t.policy_id, t.attempts, t.generation
    FROM redrive.task t
   WHERE t.org_id = $1 AND t.open AND t.received_at <= $3 AND (t.received_at, t.event_id) > ($4::timestamptz, $5::uuid)
   ORDER BY t.received_at, t.event_id FETCH FIRST $6 ROWS WITH TIES),
shut AS MATERIALIZED (
  SELECT EXISTS (SELECT FROM redrive.org o WHERE o.org_id = $1 AND o.paused_at IS NOT NULL)
      OR EXISTS (SELECT FROM redrive.installation i WHERE i.singleton AND i.paused_at IS NOT NULL) AS whole)
SELECT s.id, s.event_id, s.received_at, s.begun_at, s.kind, coalesce(s.endpoint_id::text, s.queue) AS place,
       s.attempts - CASE WHEN s.generation > 0 THEN 1 ELSE 0 END AS tries, m.max_age_s,
       coalesce(s.state = 'waiting' AND NOT shut.whole AND s.begun_at + make_interval(secs => m.max_age_s) <= $2::timestamptz
                AND NOT ((e.disabled_at IS NOT NULL OR e.paused_at IS NOT NULL) AND e.deleted_at IS NULL) IS TRUE, false) AS expired
  FROM shut CROSS JOIN seen s
  JOIN redrive.policy p ON p.org_id = $1 AND p.id = s.policy_id
 CROSS JOIN LATERAL (SELECT (p.spec ->> 'max_age_s')::float8 AS max_age_s) m
  LEFT JOIN redrive.endpoint e ON e.org_id = $1 AND e.id = s.endpoint_id
 ORDER BY s.received_at, s.event_id, s.id;
