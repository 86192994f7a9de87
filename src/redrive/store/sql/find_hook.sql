-- find_hook: the relay endpoints whose token's hash begins like this (one, in practice), with what must be known of their org,
-- and the time. Disabled and paused ones take webhooks too. $1 the first bytes, $2 now (NULL: the database's clock).
SELECT e.org_id, e.id, e.name, e.hook_hash, e.verify_scheme, e.verify_sealed, o.name AS org_name, o.limits, o.stored_bytes,
       coalesce($2::timestamptz, clock_timestamp()) AS now
  FROM redrive.endpoint e JOIN redrive.org_entry o ON o.org_id = e.org_id
 WHERE e.hook_lookup = $1 AND e.deleted_at IS NULL;
