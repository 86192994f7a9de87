-- override_step: what a person replays a step under. $1 org, $2 run, $3 index, $4 the policy (JSON; NULL: its own),
-- $5 whether its input was edited: what kept it from being tried was the old one's fault.
UPDATE redrive.step SET retry_policy_override = coalesce($4, retry_policy_override),
       problem = CASE WHEN $5::bool THEN NULL ELSE problem END
 WHERE org_id = $1 AND run_id = $2 AND index = $3;
