-- find_endpoint: by its name, whatever its case; deleted ones too, the newest. $1 org, $2 name.
SELECT id FROM redrive.endpoint WHERE org_id = $1 AND lower(name) = lower($2)
 ORDER BY name = $2 DESC, deleted_at IS NULL DESC, id DESC LIMIT 1;
