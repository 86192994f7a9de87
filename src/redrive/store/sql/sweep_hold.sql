-- sweep_hold: of events that were picked, those that may go still, their tasks locked: a redrive may have come in between. What
-- somebody else has locked is left for another pass. A row that changed is judged as it is now. $1 org, $2 now, $3 ids.
WITH held AS MATERIALIZED (
  SELECT t.event_id
    FROM redrive.task t JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
   WHERE t.org_id = $1 AND t.event_id = ANY ($3::uuid[])
     AND redrive.task_goes_at(t.state, t.reason, t.received_at, t.updated_at, t.last_failed_at, p.spec) <= $2::timestamptz
     AND t.run_id IS NULL AND (SELECT l.lane FROM redrive.lane l WHERE l.org_id = t.org_id AND l.halted_by = t.id LIMIT 1) IS NULL
   FOR UPDATE OF t SKIP LOCKED),
whole AS (SELECT event_id, count(*) AS n FROM held GROUP BY event_id)
SELECT e.id FROM redrive.event e LEFT JOIN whole w ON w.event_id = e.id
 WHERE e.org_id = $1 AND e.id = ANY ($3::uuid[]) AND e.tasks = coalesce(w.n, 0);
