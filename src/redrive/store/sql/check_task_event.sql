-- check_task_event: every task belongs to an event.
SELECT t.org_id, t.id, format('the task is %s, its event %s does not exist', t.state, t.event_id) AS detail
  FROM redrive.task t
 WHERE NOT EXISTS (SELECT FROM redrive.event e WHERE e.org_id = t.org_id AND e.id = t.event_id)
 LIMIT 11;
