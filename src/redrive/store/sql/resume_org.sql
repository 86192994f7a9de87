-- resume_org: waits for the claims that hold tasks at this moment, so that what they hold is seen afterwards. $1 now, $2 org.
WITH gate AS MATERIALIZED (SELECT redrive.close_gate($2))
UPDATE redrive.org SET paused_at = NULL, paused_by = NULL, paused_because = NULL,
       resumed_at = coalesce($1::timestamptz, clock_timestamp())
  FROM gate WHERE org_id = $2 AND paused_at IS NOT NULL RETURNING org_id AS id;
