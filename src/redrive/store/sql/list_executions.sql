-- list_executions: tasks of a run's steps that others came after. $1 org, $2 run, $3 limit.
SELECT t.id, t.step, t.state, t.attempts, t.received_at, t.updated_at
  FROM redrive.task t
 WHERE t.org_id = $1 AND t.run_id = $2 AND NOT EXISTS (
   SELECT FROM redrive.step s WHERE s.org_id = t.org_id AND s.run_id = t.run_id AND s.index = t.step AND s.task_id = t.id)
 ORDER BY t.step DESC, t.id DESC LIMIT $3;
