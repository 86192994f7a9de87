-- endpoint_names: what endpoints are called, deleted ones too. $1 org, $2 ids.
SELECT id, name FROM redrive.endpoint WHERE org_id = $1 AND id = ANY ($2::uuid[]);
