-- pause_installation: what is paused already stays as it was paused first. $1 now, $2 who, $3 why.
UPDATE redrive.installation SET paused_at = coalesce($1::timestamptz, clock_timestamp()), paused_by = $2, paused_because = $3
 WHERE singleton AND paused_at IS NULL RETURNING id;
