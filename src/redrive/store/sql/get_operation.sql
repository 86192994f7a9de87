-- get_operation: $1 org, $2 id.
SELECT * FROM redrive.operation WHERE org_id = $1 AND id = $2;
