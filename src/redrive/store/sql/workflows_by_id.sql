-- workflows_by_id: versions, in force or not. $1 orgs, $2 ids.
SELECT w.org_id, w.id, w.name, w.version, w.spec, w.headers_sealed, w.bindings
  FROM unnest($1::uuid[], $2::uuid[]) AS k(org_id, id) JOIN redrive.workflow w ON w.org_id = k.org_id AND w.id = k.id;
