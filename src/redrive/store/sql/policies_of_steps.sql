-- policies_of_steps: those in force under these names, and those of these ids. $1 org, $2 names, $3 ids.
SELECT p.id, p.name, p.spec, p.retired_at IS NULL AS in_force FROM redrive.policy p
 WHERE p.org_id = $1 AND (p.id = ANY ($3::uuid[]) OR p.name = ANY ($2::text[]) AND p.retired_at IS NULL);
