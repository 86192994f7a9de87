-- find_relay: whether an endpoint is a relay. $1 org, $2 id.
SELECT id FROM redrive.endpoint WHERE org_id = $1 AND id = $2 AND kind = 'relay' AND deleted_at IS NULL;
