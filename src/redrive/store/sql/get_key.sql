-- get_key
SELECT id, name, role, scope, endpoint_id, hint, created_at, expires_at, revoked_at, last_used_at
  FROM redrive.api_key WHERE org_id = $1 AND id = $2;
