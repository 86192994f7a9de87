-- tail_names: how orgs and endpoints are called. $1 orgs, $2 endpoints.
SELECT o.org_id AS id, o.name FROM redrive.org o WHERE o.org_id = ANY ($1::uuid[])
UNION ALL
SELECT e.id, e.name FROM redrive.endpoint e WHERE e.org_id = ANY ($1::uuid[]) AND e.id = ANY ($2::uuid[]);
