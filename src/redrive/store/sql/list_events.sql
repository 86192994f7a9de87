-- list_events: newest first. $1 org, $2 status (any, received or delivered), $3 event type, $4 and $5 before, $6 limit.
SELECT e.* FROM redrive.event_entry e
 WHERE e.org_id = $1
   AND ($2::text IS NULL OR e.status = $2)
   AND ($2 IS DISTINCT FROM 'received' OR e.tasks = 0 AND e.acked_at IS NULL)
   AND ($2 IS DISTINCT FROM 'delivered' OR e.tasks > 0 OR e.acked_at IS NOT NULL)
   AND ($3::text IS NULL OR e.event_type = $3)
   AND ($4::timestamptz IS NULL OR (e.received_at, e.id) < ($4, $5::uuid))
 ORDER BY e.received_at DESC, e.id DESC LIMIT $6;
