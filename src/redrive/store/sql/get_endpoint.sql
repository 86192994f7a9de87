-- get_endpoint
SELECT * FROM redrive.endpoint WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL;
