-- check_event_tasks: an event that waits for tasks, or failed by one, has some.
SELECT e.org_id, e.id, format('the event is %s but has no task', e.status) AS detail
  FROM redrive.event e
 WHERE e.status IN ('queued', 'failed')
   AND NOT EXISTS (SELECT FROM redrive.task t WHERE t.org_id = e.org_id AND t.event_id = e.id)
 LIMIT 11;
