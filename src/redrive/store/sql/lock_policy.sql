-- lock_policy: the version in force, for whoever is about to retire it.
SELECT * FROM redrive.policy WHERE org_id = $1 AND name = $2 AND retired_at IS NULL FOR UPDATE;
