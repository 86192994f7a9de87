-- open_letters_of: the open dead letters of an event, oldest first. $1 org, $2 event.
SELECT d.task_id FROM redrive.dead_letter d
 WHERE d.org_id = $1 AND d.state = 'open' AND d.event_id = $2 ORDER BY d.created_at, d.task_id;
