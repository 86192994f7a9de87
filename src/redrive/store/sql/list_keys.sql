-- list_keys: an org's keys, oldest first, without anything that would open a door. $1 org, $2 after this id, $3 limit.
SELECT id, name, role, scope, endpoint_id, hint, created_at, expires_at, revoked_at, last_used_at
  FROM redrive.api_key WHERE org_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3;
