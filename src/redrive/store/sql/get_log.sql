-- get_log: a task with its payload. $1 org, $2 task.
SELECT e.*, b.body, b.content_type
  FROM redrive.task_entry e JOIN redrive.event b ON b.org_id = e.org_id AND b.id = e.event_id
 WHERE e.org_id = $1 AND e.id = $2;
