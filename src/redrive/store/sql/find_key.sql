-- find_key: the valid keys whose hash begins like this (one, in practice), with what must be known of their org.
SELECT k.org_id, k.id, k.name, k.role, k.scope, k.endpoint_id, k.hash, o.name AS org_name, o.limits, o.stored_bytes
  FROM redrive.api_key k JOIN redrive.org_entry o ON o.org_id = k.org_id
 WHERE k.lookup = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp());
