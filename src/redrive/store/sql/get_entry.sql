-- get_entry
SELECT e.* FROM redrive.task_entry e WHERE e.org_id = $1 AND e.id = $2;
