-- rename_org
UPDATE redrive.org SET name = $2 WHERE org_id = $1;
