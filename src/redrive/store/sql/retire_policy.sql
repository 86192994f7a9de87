-- retire_policy: out of force; tasks keep the version that they were accepted under. $1 org, $2 id.
UPDATE redrive.policy SET retired_at = clock_timestamp() WHERE org_id = $1 AND id = $2;
