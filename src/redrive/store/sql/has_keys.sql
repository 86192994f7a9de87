-- has_keys: whether anybody could sign in to this org.
SELECT EXISTS (SELECT FROM redrive.api_key WHERE org_id = $1 AND revoked_at IS NULL) AS has_keys;
