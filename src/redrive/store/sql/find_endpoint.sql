-- find_endpoint: by its name, deleted ones too: the newest. $1 org, $2 name.
SELECT id FROM redrive.endpoint WHERE org_id = $1 AND name = $2 ORDER BY deleted_at IS NULL DESC, id DESC LIMIT 1;
