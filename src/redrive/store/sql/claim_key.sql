-- claim_key: be the first under an idempotency key. $1 org, $2 scope, $3 key, $4 digest of the body.
-- Somebody who claims the same key at the same time waits here for our commit, and then gets no row.
INSERT INTO redrive.idempotency (org_id, scope, key, body_digest) VALUES ($1, $2, $3, $4)
ON CONFLICT (org_id, scope, key) DO NOTHING RETURNING key;
