-- find_org_entry: an org by its id or its name. $1 text, $2 the same as an id where it is one.
SELECT org_id, name AS org_name, limits, stored_bytes FROM redrive.org_entry
 WHERE name = $1 UNION SELECT org_id, name, limits, stored_bytes FROM redrive.org_entry WHERE org_id = $2 LIMIT 1;
