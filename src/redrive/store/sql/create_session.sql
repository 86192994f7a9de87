-- create_session, and clear away some that have ended. $1 hash, $2 id, $3 user, $4 role, $5 org, $6 source, $7 lasts, $8 now, $9 by link.
WITH ended AS (
  DELETE FROM redrive.session WHERE token_hash IN (
    SELECT s.token_hash FROM redrive.session s WHERE s.expires_at < coalesce($8::timestamptz, clock_timestamp())
     ORDER BY s.expires_at LIMIT 100 FOR UPDATE SKIP LOCKED))
INSERT INTO redrive.session (token_hash, id, user_id, role, in_org, source, created_at, expires_at, by_link)
SELECT $1, $2, $3, $4, $5, $6, n.now, n.now + $7::interval, $9::boolean
  FROM (SELECT coalesce($8::timestamptz, clock_timestamp()) AS now) n;
