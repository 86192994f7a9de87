-- update_endpoint: disabled_at and its reason keep those of the first of several disablings. $18 why, $19 and $20 how webhooks are
-- verified, $21 and $22 where RabbitMQ brings it, $23 to whom mail goes, $24 and $25 the URL of apprise.
UPDATE redrive.endpoint SET
       name = $3, url = $4, event_types = $5, type_patterns = $6, policy = $7, ordered = $8, external_system = $9,
       headers_sealed = $10, ca_pem = $11, timeout_s = $12, max_in_flight = $13, rate_per_s = $14,
       disabled_at = CASE WHEN $15::bool THEN coalesce(disabled_at, clock_timestamp()) END,
       max_block_s = $16, on_block = $17,
       disabled_reason = CASE WHEN NOT $15::bool THEN NULL WHEN disabled_at IS NULL THEN $18 ELSE disabled_reason END,
       disabled_by_engine = disabled_by_engine AND $15::bool,
       verify_scheme = $19, verify_sealed = $20, exchange = $21, routing_key = $22, mail_to = $23,
       apprise_service = $24, apprise_sealed = $25, updated_at = clock_timestamp()
 WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING *;
