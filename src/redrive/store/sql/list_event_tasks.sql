-- list_event_tasks: an event's tasks with their dead letters, deleted ones included. $1 org, $2 event.
SELECT e.*, d.state AS letter_state, d.reason AS letter_reason, d.category AS letter_category, d.fingerprint, d.failed_at,
       d.closed_at, d.closed_by
  FROM redrive.task t
  JOIN redrive.task_entry e ON e.org_id = t.org_id AND e.id = t.id
  LEFT JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
 WHERE t.org_id = $1 AND t.event_id = $2
 ORDER BY t.id LIMIT 1000;
