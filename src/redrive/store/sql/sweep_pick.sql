-- sweep_pick: the next events of an org by age, and whether each may go: every task of it by its own policy, one of the inbox
-- some time after it was acknowledged, or came. What is a step of a run goes with the run. What halts a lane waits for a person, however old it is. Nothing is locked yet. $1 org, $2 now, $3 until, $4 and $5 after, $6 seconds that
-- acknowledged ones are kept, $7 seconds that those are kept which nobody acknowledges, $8 limit.
WITH seen AS MATERIALIZED (
  SELECT e.id, e.received_at, e.tasks, e.acked_at
    FROM redrive.event e
   WHERE e.org_id = $1 AND e.received_at <= $3 AND (e.received_at, e.id) > ($4::timestamptz, $5::uuid)
   ORDER BY e.received_at, e.id LIMIT $8)
SELECT s.id, s.received_at,
       coalesce(CASE s.tasks WHEN 0 THEN CASE WHEN s.acked_at IS NULL THEN s.received_at + make_interval(secs => $7::float8)
                                              ELSE s.acked_at + make_interval(secs => $6::float8) END <= $2
                             ELSE f.n = s.tasks AND f.all_go END, false) AS goes
  FROM seen s
 CROSS JOIN LATERAL (
   SELECT count(*) AS n,
          bool_and(coalesce(redrive.task_goes_at(t.state, t.reason, t.received_at, t.updated_at, t.last_failed_at, p.spec)
                            <= $2::timestamptz
                            AND (SELECT l.lane FROM redrive.lane l WHERE l.org_id = t.org_id AND l.halted_by = t.id LIMIT 1) IS NULL
                            AND t.run_id IS NULL, false)) AS all_go
     FROM redrive.task t JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
    WHERE t.org_id = $1 AND t.event_id = s.id) f
 ORDER BY s.received_at, s.id;
