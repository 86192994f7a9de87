-- check_event_tasks: an event has the tasks that it was fanned out to, all of them.
WITH told AS (
  SELECT org_id, event_id, count(*) AS n FROM redrive.task GROUP BY org_id, event_id)
SELECT e.org_id, e.id, format('the event was fanned out to %s tasks and has %s', e.tasks, coalesce(t.n, 0)) AS detail
  FROM redrive.event e
  LEFT JOIN told t ON t.org_id = e.org_id AND t.event_id = e.id
 WHERE e.tasks <> coalesce(t.n, 0)
 LIMIT 11;
