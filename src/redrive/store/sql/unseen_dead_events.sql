-- unseen_dead_events: those of these events whose dead letters nobody is to deal with any more: closed, redriven with success, or removed.
-- $1 org, $2 events.
SELECT r.id FROM unnest($2::uuid[]) AS r(id)
 WHERE NOT EXISTS (
   SELECT FROM redrive.task t JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
    WHERE t.org_id = $1 AND t.event_id = r.id AND d.state IN ('open', 'replaying'));
