-- get_failed_entry: a task that has failed before, whatever became of it. Not one that never failed, nor one whose dead letter a
-- person deleted. $1 org, $2 task.
SELECT e.*, d.state AS letter_state
  FROM redrive.task_entry e
  LEFT JOIN redrive.dead_letter d ON d.org_id = e.org_id AND d.task_id = e.id
 WHERE e.org_id = $1 AND e.id = $2
   AND (e.first_failed_at IS NOT NULL OR e.state = 'dead') AND d.state IS DISTINCT FROM 'deleted';
