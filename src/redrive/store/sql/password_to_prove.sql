-- password_to_prove: what somebody knows who sets a new password of their own in this session. `password_hash` is NULL where
-- they need not: they came by a link, or have none. No row: the session has ended. $1 the hash of its token, $2 now.
SELECT u.id, u.email, CASE WHEN NOT s.by_link THEN u.password_hash END AS password_hash
  FROM redrive.session s
  JOIN redrive.user_account u ON u.id = s.user_id
 WHERE s.token_hash = $1 AND s.expires_at > coalesce($2::timestamptz, clock_timestamp());
