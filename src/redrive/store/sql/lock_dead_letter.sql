-- lock_dead_letter: the task first, then its letter, in the order in which the engine takes them.
WITH task AS MATERIALIZED (
  SELECT t.org_id, t.id, t.state, t.policy_id, t.edit, t.generation, t.lane, t.run_id
    FROM redrive.task t WHERE t.org_id = $1 AND t.id = $2 FOR UPDATE)
SELECT d.*, t.state AS task_state, t.edit, t.generation AS task_generation, t.lane, t.run_id, p.spec,
       t.run_id IS NOT NULL AND EXISTS (
         SELECT FROM redrive.task o WHERE o.org_id = t.org_id AND o.run_id = t.run_id AND o.open) AS run_is_under_way
  FROM task t
  JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
  JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
   FOR UPDATE OF d;
