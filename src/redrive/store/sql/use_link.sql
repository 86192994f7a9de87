-- use_link: once. The row goes with its use, so that of two at the same time one finds nothing. $2 now.
DELETE FROM redrive.login_link WHERE token_hash = $1
RETURNING user_id, role, in_org AS org_id, expires_at > coalesce($2::timestamptz, clock_timestamp()) AS in_time;
