-- endpoints_by_id: for the engine, deleted ones included. $1 orgs, $2 ids.
SELECT e.*, o.name AS org_name FROM unnest($1::uuid[], $2::uuid[]) AS k(org_id, id)
  JOIN redrive.endpoint e ON e.org_id = k.org_id AND e.id = k.id
  JOIN redrive.org o ON o.org_id = k.org_id;
