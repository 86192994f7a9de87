-- top_orgs: orgs by name. $1 limit.
SELECT o.org_id, o.name FROM redrive.org o ORDER BY o.name LIMIT $1;
