-- list_endpoints: oldest first. $1 org, $2 after this id, $3 limit.
SELECT * FROM redrive.endpoint
 WHERE org_id = $1 AND deleted_at IS NULL AND ($2::uuid IS NULL OR id > $2)
 ORDER BY id LIMIT $3;
