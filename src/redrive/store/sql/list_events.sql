-- list_events: newest first. $1 org, $2 status, $3 event type, $4 before this id, $5 limit.
SELECT e.* FROM redrive.event e
 WHERE e.org_id = $1
   AND ($2::text IS NULL OR e.status = $2)
   AND ($3::text IS NULL OR e.event_type = $3)
   AND ($4::uuid IS NULL OR e.id < $4)
 ORDER BY e.id DESC LIMIT $5;
