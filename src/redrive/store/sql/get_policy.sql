-- get_policy: the version in force.
SELECT * FROM redrive.policy WHERE org_id = $1 AND name = $2 AND retired_at IS NULL;
