-- list_unfinished_events: newest first, found by their tasks: most events are delivered, and none of those is looked at.
-- $1 org, $2 status (queued or failed), $3 event type, $4 and $5 before, $6 limit.
WITH found AS MATERIALIZED (
  SELECT DISTINCT ON (t.received_at, t.event_id) t.received_at, t.event_id
    FROM redrive.task t
   WHERE t.org_id = $1
     AND ($2 = 'queued' AND t.open OR $2 = 'failed' AND t.reason IS NOT NULL)
     AND ($2 = 'queued' OR (
       SELECT true FROM redrive.task o  -- no join, which a planner with old numbers would make of all with all
        WHERE o.org_id = t.org_id AND o.received_at = t.received_at AND o.event_id = t.event_id AND o.open LIMIT 1) IS NULL)
     AND ($3::text IS NULL OR t.event_type = $3)
     AND ($4::timestamptz IS NULL OR (t.received_at, t.event_id) < ($4, $5::uuid))
   ORDER BY t.received_at DESC, t.event_id DESC LIMIT $6)
SELECT e.* FROM found f JOIN redrive.event_entry e ON e.org_id = $1 AND e.id = f.event_id
 ORDER BY e.received_at DESC, e.id DESC;
