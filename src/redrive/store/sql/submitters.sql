-- submitters: who handed events in, and their correlation ids. $1 org, $2 ids.
SELECT id, submitted_by, correlation_id FROM redrive.event WHERE org_id = $1 AND id = ANY ($2::uuid[]);
