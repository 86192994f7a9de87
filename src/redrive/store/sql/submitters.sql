-- submitters: who handed events in. $1 org, $2 ids.
SELECT id, submitted_by FROM redrive.event WHERE org_id = $1 AND id = ANY ($2::uuid[]);
