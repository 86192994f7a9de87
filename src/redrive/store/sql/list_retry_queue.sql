-- list_retry_queue: $1 org, $2 status, $3 event type, $4 external system, $5 endpoint, $6 and $7 after, $8 limit.
SELECT e.* FROM redrive.task_entry e
 WHERE e.org_id = $1 AND e.open AND e.attempts > 0
   AND ($2::text IS NULL OR (e.state = 'leased' OR e.expedited) = ($2 = 'in_progress'))
   AND ($3::text IS NULL OR e.event_type = $3)
   AND ($4::text IS NULL OR e.external_system = $4)
   AND ($5::uuid IS NULL OR e.endpoint_id = $5)
   AND ($6::timestamptz IS NULL OR (e.due_at, e.id) > ($6, $7::uuid))
 ORDER BY e.due_at, e.id LIMIT $8;
