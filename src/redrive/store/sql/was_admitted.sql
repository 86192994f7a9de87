-- was_admitted: whether an account was ever made a member of this org. The audit knows; it is never cleared. $1 org, $2 user.
SELECT FROM redrive.audit WHERE org_id = $1 AND subject_id = $2 AND action = 'user.create' LIMIT 1;
