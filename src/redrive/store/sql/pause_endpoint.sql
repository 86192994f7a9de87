-- pause_endpoint: what is paused already stays as it was paused first. $1 now, $2 who, $3 why, $4 org, $5 endpoint.
UPDATE redrive.endpoint SET paused_at = coalesce($1::timestamptz, clock_timestamp()), paused_by = $2, paused_because = $3,
       updated_at = coalesce($1::timestamptz, clock_timestamp())
 WHERE org_id = $4 AND id = $5 AND deleted_at IS NULL AND paused_at IS NULL RETURNING id;
