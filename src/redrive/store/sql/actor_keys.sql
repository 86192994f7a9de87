-- actor_keys: what an org's keys are called, revoked ones too. An OWNER's key may act here and be of another org: what
-- that one calls it is not told. $1 org, $2 ids of keys.
SELECT k.id, k.name FROM redrive.api_key k WHERE k.org_id = $1 AND k.id = ANY ($2::uuid[]);
