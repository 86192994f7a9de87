-- sweep_runs: ended runs that may go, and of which no dead letter waits for a person, held still with their tasks: a person may replay one at this moment. What somebody else has locked is
-- left for another pass. $1 org, $2 now, $3 limit.
WITH picked AS MATERIALIZED (
  SELECT r.id FROM redrive.run r
   WHERE r.org_id = $1 AND r.retention_s IS NOT NULL AND r.finished_at IS NOT NULL
     AND redrive.goes_at(r.finished_at, r.retention_s) <= $2::timestamptz
     AND NOT EXISTS (
       SELECT FROM redrive.task t JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
        WHERE t.org_id = $1 AND t.run_id = r.id AND d.state = 'open')
   ORDER BY redrive.goes_at(r.finished_at, r.retention_s) LIMIT $3),
-- The tasks before the run, as whoever replays it takes them.
tasks AS MATERIALIZED (
  SELECT t.run_id, t.event_id FROM redrive.task t JOIN picked p ON t.run_id = p.id
   WHERE t.org_id = $1 AND NOT t.open FOR UPDATE OF t SKIP LOCKED),
whole AS MATERIALIZED (
  SELECT p.id FROM picked p
   WHERE (SELECT count(*) FROM tasks t WHERE t.run_id = p.id)
       = (SELECT count(*) FROM redrive.task t WHERE t.org_id = $1 AND t.run_id = p.id)),
held AS MATERIALIZED (
  SELECT r.id FROM redrive.run r JOIN whole w ON w.id = r.id
   WHERE r.org_id = $1 AND r.finished_at IS NOT NULL FOR UPDATE OF r SKIP LOCKED)
SELECT h.id, coalesce((SELECT array_agg(t.event_id) FROM tasks t WHERE t.run_id = h.id), '{}') AS events FROM held h;
