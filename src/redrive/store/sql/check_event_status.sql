-- check_event_status: queued while a task is open, else failed if one is dead, else delivered. An event without tasks
-- is received, or delivered once it was acknowledged.
WITH told AS (
  SELECT org_id, event_id,
         CASE WHEN bool_or(state IN ('waiting', 'leased', 'held')) THEN 'queued'
              WHEN bool_or(state = 'dead') THEN 'failed' ELSE 'delivered' END AS status
    FROM redrive.task GROUP BY org_id, event_id)
SELECT e.org_id, e.id, format('the event is %s, by its tasks it is %s', e.status, t.status) AS detail
  FROM redrive.event e
  JOIN told t ON t.org_id = e.org_id AND t.event_id = e.id
 WHERE e.status <> t.status
 LIMIT 11;
