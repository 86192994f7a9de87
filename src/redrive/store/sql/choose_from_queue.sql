-- choose_from_queue: the event types among the entries of the retry queue that are due soonest.
-- $1 org, $2 how many entries to look at. (No index knows the queue by type: it would be written with every retry.)
WITH soonest AS MATERIALIZED (
  SELECT t.event_type FROM redrive.task t
   WHERE t.org_id = $1 AND t.open AND t.attempts > 0
   ORDER BY t.due_at, t.id LIMIT $2)
SELECT ARRAY(SELECT DISTINCT event_type FROM soonest ORDER BY event_type) AS event_types,
       (SELECT count(*) FROM soonest) < $2 AS is_whole;
