-- count_unfinished_events: of one status (queued or failed), counted up to a limit; NULL beyond it. $1 org, $2 status.
SELECT CASE WHEN count(*) <= 100000 THEN count(*) END AS n FROM (
  SELECT DISTINCT t.received_at, t.event_id
    FROM redrive.task t
   WHERE t.org_id = $1
     AND ($2 = 'queued' AND t.open OR $2 = 'failed' AND t.reason IS NOT NULL)
     AND ($2 = 'queued' OR NOT EXISTS (
       SELECT FROM redrive.task o WHERE o.org_id = t.org_id AND o.event_id = t.event_id AND o.open))
   LIMIT 100001) c;
