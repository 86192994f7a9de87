-- extend_session: it lasts on while it is used, to its end at the latest. $2 lasts, $3 longest, $4 now.
UPDATE redrive.session
   SET expires_at = least(created_at + $3::interval, coalesce($4::timestamptz, clock_timestamp()) + $2::interval)
 WHERE token_hash = $1 AND expires_at > coalesce($4::timestamptz, clock_timestamp());
