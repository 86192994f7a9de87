-- ack_event: somebody took an event out of the inbox. No row where it does not wait there. $1 org, $2 id, $3 now, $4 who.
UPDATE redrive.event SET acked_at = coalesce($3::timestamptz, clock_timestamp()), acked_by = $4
 WHERE org_id = $1 AND id = $2 AND tasks = 0 AND acked_at IS NULL
RETURNING id;
