-- task_of_event: the one task of an event that was handed in for one endpoint or handler. $1 org, $2 event.
SELECT t.id FROM redrive.task t WHERE t.org_id = $1 AND t.event_id = $2 ORDER BY t.id LIMIT 1;
