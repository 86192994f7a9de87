-- revoke_key
UPDATE redrive.api_key SET revoked_at = clock_timestamp()
 WHERE org_id = $1 AND id = $2 AND revoked_at IS NULL RETURNING id;
