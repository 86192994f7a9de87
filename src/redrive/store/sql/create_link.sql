-- create_link, and clear away some that were never used. $1 hash, $2 user, $3 role, $4 org, $5 lasts, $6 now.
WITH ended AS (
  DELETE FROM redrive.login_link WHERE token_hash IN (
    SELECT l.token_hash FROM redrive.login_link l WHERE l.expires_at < coalesce($6::timestamptz, clock_timestamp())
     ORDER BY l.expires_at LIMIT 100 FOR UPDATE SKIP LOCKED))
INSERT INTO redrive.login_link (token_hash, user_id, role, in_org, expires_at)
VALUES ($1, $2, $3, $4, coalesce($6::timestamptz, clock_timestamp()) + $5::interval);
