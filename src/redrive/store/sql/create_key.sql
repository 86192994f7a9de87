-- create_key: keep a new key's hash. $1 org, $2 id, $3 name, $4 role, $5 hint, $6 lookup, $7 hash, $8 end, $9 scope, $10 endpoint.
INSERT INTO redrive.api_key (org_id, id, name, role, hint, lookup, hash, expires_at, scope, endpoint_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
RETURNING id, name, role, scope, endpoint_id, hint, created_at, expires_at, revoked_at, last_used_at;
