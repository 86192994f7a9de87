-- count_steps: add to counters. $1 orgs, $2 names, $3 by how much.
SELECT redrive.count_for(d.org_id, d.name, d.n) FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS d(org_id, name, n)
 ORDER BY d.org_id, d.name;
