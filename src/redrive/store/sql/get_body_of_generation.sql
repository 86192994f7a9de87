-- get_body_of_generation: the edited body that the tries of a generation sent; NULL or no row: the event's. $1 org, $2 task.
SELECT e.body FROM redrive.edit e
 WHERE e.org_id = $1 AND e.task_id = $2 AND e.generation <= $3
 ORDER BY e.number DESC LIMIT 1;
