-- note_key_use: when a key was last used, to the minute: other processes may have noted it already. $3 now.
UPDATE redrive.api_key SET last_used_at = coalesce($3::timestamptz, clock_timestamp())
 WHERE org_id = $1 AND id = $2
   AND (last_used_at IS NULL OR last_used_at < coalesce($3::timestamptz, clock_timestamp()) - interval '60 s');
