-- choose_endpoint_names: the first endpoints by name. $1 org, $2 limit.
SELECT id, name FROM redrive.endpoint WHERE org_id = $1 AND deleted_at IS NULL ORDER BY name LIMIT $2;
