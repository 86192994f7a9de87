-- lock_run_tasks: hold the tasks of a run's steps still, before the run itself, as the engine does: the one that is
-- under way first, which the engine holds when it comes to others. $1 org, $2 run.
WITH locked AS MATERIALIZED (
  SELECT t.org_id, t.id, t.step, t.state, t.queue, t.kind, t.endpoint_id, t.event_id, t.generation, t.edit, t.policy_id
    FROM redrive.task t WHERE t.org_id = $1 AND t.run_id = $2 ORDER BY t.open DESC, t.id FOR UPDATE)
SELECT l.*, d.state AS letter_state, s.task_id IS NOT NULL AS is_current
  FROM locked l
  LEFT JOIN redrive.dead_letter d ON d.org_id = l.org_id AND d.task_id = l.id
  LEFT JOIN redrive.step s ON s.org_id = l.org_id AND s.run_id = $2 AND s.index = l.step AND s.task_id = l.id
 ORDER BY l.step, l.id;
