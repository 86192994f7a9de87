-- kept_headers: what events that are known were handed in with, to tell whether another differs from them by its trace alone.
-- $1 orgs, $2 events.
SELECT e.org_id, e.id, e.headers
  FROM unnest($1::uuid[], $2::uuid[]) AS r(org_id, id)
  JOIN redrive.event e ON e.org_id = r.org_id AND e.id = r.id;
