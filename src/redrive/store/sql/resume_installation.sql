-- resume_installation: waits for the claims that hold tasks at this moment, so that what they hold is seen afterwards. $1 now.
UPDATE redrive.installation SET paused_at = NULL, paused_by = NULL, paused_because = NULL,
       resumed_at = coalesce($1::timestamptz, clock_timestamp())
 WHERE singleton AND paused_at IS NOT NULL RETURNING id;
