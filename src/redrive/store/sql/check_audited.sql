-- check_audited: what a person did with a dead letter stands in the audit: skip, retry, resolve, ignore, delete.
WITH done AS (
  SELECT d.org_id, d.task_id, act.action
    FROM redrive.dead_letter d
    JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
    LEFT JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
   CROSS JOIN LATERAL (
     SELECT t.run_id IS NOT NULL AND EXISTS (
       SELECT FROM redrive.audit a WHERE a.org_id = t.org_id AND a.subject_id = t.run_id AND a.action = 'run.cancel') AS is_so) cancelled
   CROSS JOIN LATERAL (VALUES
     ('task.skip', d.reason = 'skipped' AND NOT cancelled.is_so),
     ('dead_letter.retry', d.replays > 0),  -- or a replay, which is a retry with other terms
     -- A replay that succeeded resolves the letter by itself.
     ('dead_letter.resolve', d.state = 'resolved' AND t.state = 'dead'),
     -- A test that failed, and a failure that its policy takes quietly, are ignored by the engine. So is what a cancelled run leaves.
     ('dead_letter.ignore', d.state = 'ignored' AND NOT cancelled.is_so
                            AND (d.closed_by = 'engine' AND (t.is_test OR d.reason = 'permanent' AND (p.spec ->> 'quiet_permanent')::boolean)) IS NOT TRUE),
     ('dead_letter.delete', d.state = 'deleted')) AS act(action, taken)
   WHERE act.taken)
SELECT done.org_id, done.task_id AS id, format('%s is not in the audit', done.action) AS detail
  FROM done
 WHERE NOT EXISTS (
   SELECT FROM redrive.audit a
    WHERE a.org_id = done.org_id AND a.subject_id = done.task_id
      AND (a.action = done.action OR done.action = 'dead_letter.retry' AND a.action = 'dead_letter.replay'))
 LIMIT 11;
