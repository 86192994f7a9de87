-- set_default: a policy becomes the org's default; the one before was cleared. No row where there is none of this name. $1 org, $2 name.
UPDATE redrive.policy SET is_default = true WHERE org_id = $1 AND name = $2 AND retired_at IS NULL RETURNING id;
