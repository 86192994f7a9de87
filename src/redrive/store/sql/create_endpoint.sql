-- create_endpoint
INSERT INTO redrive.endpoint (org_id, id, name, url, event_types, type_patterns, policy, ordered, external_system,
                              headers_sealed, ca_pem, timeout_s, max_in_flight, rate_per_s, disabled_at, max_block_s, on_block,
                              secret_sealed, kind, hook_lookup, hook_hash, hook_sealed, verify_scheme, verify_sealed,
                              exchange, routing_key, mail_to, apprise_service, apprise_sealed)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
        CASE WHEN $15::bool THEN clock_timestamp() END, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)
RETURNING *;
