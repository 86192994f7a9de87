-- get_claim: what was made under an idempotency key. $1 org, $2 scope, $3 key.
SELECT body_digest, subject_id FROM redrive.idempotency WHERE org_id = $1 AND scope = $2 AND key = $3;
