-- get_step_of_task: which step of which run a task carries out, and whether it still does. $1 org, $2 task.
SELECT t.run_id, t.step, s.index IS NOT NULL AS is_current
  FROM redrive.task t
  LEFT JOIN redrive.step s ON s.org_id = t.org_id AND s.run_id = t.run_id AND s.index = t.step AND s.task_id = t.id
 WHERE t.org_id = $1 AND t.id = $2 AND t.run_id IS NOT NULL;
