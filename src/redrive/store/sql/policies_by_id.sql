-- policies_by_id: the versions that tasks were accepted under. $1 orgs, $2 ids.
SELECT p.org_id, p.id, p.name, p.spec
  FROM unnest($1::uuid[], $2::uuid[]) AS k(org_id, id)
  JOIN redrive.policy p ON p.org_id = k.org_id AND p.id = k.id;
