-- find_key: the valid keys whose hash begins like this (one, in practice).
SELECT org_id, id, name, role, scope, hash FROM redrive.api_key
 WHERE lookup = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());
