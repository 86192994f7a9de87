-- list_policies: those in force.
SELECT * FROM redrive.policy WHERE org_id = $1 AND retired_at IS NULL ORDER BY name LIMIT 1000;
