-- fallback_policy: what an org without a default of its own falls back to. $1 org.
SELECT p.name FROM redrive.policy p JOIN redrive.installation i ON i.singleton AND i.default_policy = p.name
 WHERE p.org_id = $1 AND p.retired_at IS NULL;
