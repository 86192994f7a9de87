-- find_org: an org by its name.
SELECT org_id FROM redrive.org WHERE name = $1;
