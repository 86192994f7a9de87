-- resume_endpoint: waits for the claims that hold tasks at this moment, so that what they hold is seen afterwards.
-- $1 now, $2 org, $3 endpoint.
WITH gate AS MATERIALIZED (SELECT redrive.close_gate($3))
UPDATE redrive.endpoint SET paused_at = NULL, paused_by = NULL, paused_because = NULL,
       resumed_at = coalesce($1::timestamptz, clock_timestamp()), updated_at = coalesce($1::timestamptz, clock_timestamp())
  FROM gate WHERE org_id = $2 AND id = $3 AND deleted_at IS NULL AND paused_at IS NOT NULL RETURNING id;
