-- resume_installation: waits for the claims that hold tasks at this moment, so that what they hold is seen afterwards. $1 now.
WITH gate AS MATERIALIZED (SELECT redrive.close_gate(id) FROM redrive.installation WHERE singleton)
UPDATE redrive.installation SET paused_at = NULL, paused_by = NULL, paused_because = NULL,
       resumed_at = coalesce($1::timestamptz, clock_timestamp())
  FROM gate WHERE singleton AND paused_at IS NOT NULL RETURNING id;
