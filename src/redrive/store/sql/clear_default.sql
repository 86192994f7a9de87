-- clear_default: another policy becomes the org's default; at most one is. $1 org, $2 the name of the new one.
UPDATE redrive.policy SET is_default = false
 WHERE org_id = $1 AND is_default AND retired_at IS NULL AND name <> $2
RETURNING id, name;
