-- override_step: what a person replays a step under. $1 org, $2 run, $3 index, $4 the policy (JSON).
UPDATE redrive.step SET retry_policy_override = $4 WHERE org_id = $1 AND run_id = $2 AND index = $3;
