-- put_off_operation: a step of it failed and left nothing; others come first for a while. $1 org, $2 id, $3 now, $4 seconds.
UPDATE redrive.operation SET step_at = $3::timestamptz + make_interval(secs => $4) WHERE org_id = $1 AND id = $2;
