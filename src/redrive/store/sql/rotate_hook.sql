-- rotate_hook: another token for a relay endpoint's address; the one before is nobody's from now on.
-- $1 org, $2 endpoint, $3 first bytes of its hash, $4 hash, $5 the token, sealed.
UPDATE redrive.endpoint SET hook_lookup = $3, hook_hash = $4, hook_sealed = $5, updated_at = clock_timestamp()
 WHERE org_id = $1 AND id = $2 AND kind = 'relay' AND deleted_at IS NULL
RETURNING *;
