-- pause_org: what is paused already stays as it was paused first. $1 now, $2 who, $3 why, $4 org.
UPDATE redrive.org SET paused_at = coalesce($1::timestamptz, clock_timestamp()), paused_by = $2, paused_because = $3
 WHERE org_id = $4 AND paused_at IS NULL RETURNING org_id AS id;
