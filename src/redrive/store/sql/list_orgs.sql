-- list_orgs: oldest first. $1 only these, or NULL for all; $2 after this id; $3 limit.
SELECT org_id, name, created_at, limits, stored_bytes, endpoints FROM redrive.org_entry
 WHERE ($1::uuid[] IS NULL OR org_id = ANY ($1)) AND ($2::uuid IS NULL OR org_id > $2)
 ORDER BY org_id LIMIT $3;
