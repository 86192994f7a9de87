-- password_to_prove: what somebody must know who sets a new password of their own in this session. None where they came by a
-- link, or have none. $1 the hash of the session's token.
SELECT u.email, u.password_hash
  FROM redrive.session s
  JOIN redrive.user_account u ON u.id = s.user_id
 WHERE s.token_hash = $1 AND NOT s.by_link AND u.password_hash IS NOT NULL;
