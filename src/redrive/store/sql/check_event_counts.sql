-- check_event_counts: an event's open_tasks and dead_tasks are what its tasks say. (Without any: see check_event_tasks.)
WITH told AS (
  SELECT org_id, event_id, count(*) FILTER (WHERE state IN ('waiting', 'leased', 'held')) AS open,
         count(*) FILTER (WHERE state = 'dead') AS dead
    FROM redrive.task GROUP BY org_id, event_id)
SELECT e.org_id, e.id, format('the event says %s open and %s dead, its tasks say %s and %s', e.open_tasks, e.dead_tasks,
                              coalesce(t.open, 0), coalesce(t.dead, 0)) AS detail
  FROM redrive.event e
  LEFT JOIN told t ON t.org_id = e.org_id AND t.event_id = e.id
 WHERE (e.open_tasks <> coalesce(t.open, 0) OR e.dead_tasks <> coalesce(t.dead, 0))
   AND (t.event_id IS NOT NULL OR e.status IN ('received', 'delivered'))
 LIMIT 11;
