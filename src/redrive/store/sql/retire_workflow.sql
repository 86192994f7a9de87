-- retire_workflow: no run begins with it any more; those that there are go on. $1 org, $2 name.
UPDATE redrive.workflow SET retired_at = clock_timestamp() WHERE org_id = $1 AND name = $2 AND retired_at IS NULL RETURNING id, version;
