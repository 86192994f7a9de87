-- fulfil_claim: name what was made. $1 org, $2 scope, $3 key, $4 its id.
UPDATE redrive.idempotency SET subject_id = $4 WHERE org_id = $1 AND scope = $2 AND key = $3;
