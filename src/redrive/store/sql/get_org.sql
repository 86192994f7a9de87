-- get_org: one with its limits and what it uses.
SELECT org_id, name, created_at, limits, stored_bytes, endpoints FROM redrive.org_entry WHERE org_id = $1;
