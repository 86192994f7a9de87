-- watch_operations: how those that somebody looks at stand. $1 orgs, $2 ids.
SELECT o.* FROM unnest($1::uuid[], $2::uuid[]) AS k(org_id, id)
  JOIN redrive.operation o ON o.org_id = k.org_id AND o.id = k.id;
