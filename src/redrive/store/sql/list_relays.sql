-- list_relays: relays by name, for a choice among them. $1 org, $2 limit.
SELECT id, name FROM redrive.endpoint WHERE org_id = $1 AND kind = 'relay' AND deleted_at IS NULL ORDER BY name, id LIMIT $2;
