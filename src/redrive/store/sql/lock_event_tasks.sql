-- lock_event_tasks: hold an event's tasks still, in the order of their ids. The tasks before the event: the janitor holds
-- them in this order, too. $1 org, $2 event.
SELECT t.id, t.state, t.open, t.run_id FROM redrive.task t WHERE t.org_id = $1 AND t.event_id = $2 ORDER BY t.id FOR UPDATE;
