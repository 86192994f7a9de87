-- note_login. $2 now.
UPDATE redrive.user_account SET last_login_at = coalesce($2::timestamptz, clock_timestamp()) WHERE id = $1;
