-- get_step_of_task: which step of which run a task carries out, whether it still does, and its dead letter's state. $1 org, $2 task.
SELECT t.run_id, t.step, s.index IS NOT NULL AS is_current, t.state AS task_state, d.state AS letter_state
  FROM redrive.task t
  LEFT JOIN redrive.step s ON s.org_id = t.org_id AND s.run_id = t.run_id AND s.index = t.step AND s.task_id = t.id
  LEFT JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
 WHERE t.org_id = $1 AND t.id = $2 AND t.run_id IS NOT NULL;
