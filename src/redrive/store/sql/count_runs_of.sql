-- count_runs_of: the runs of some workflows by status, each counted no further than a limit. $1 org, $2 workflows, $3 statuses, $4 at most.
SELECT w.name AS workflow, s.status, c.n
  FROM unnest($2::text[]) AS w(name) CROSS JOIN unnest($3::text[]) AS s(status)
 CROSS JOIN LATERAL (
   SELECT count(*) AS n FROM (
     SELECT FROM redrive.run r WHERE r.org_id = $1 AND r.workflow = w.name AND r.status = s.status LIMIT $4) f) c
 WHERE c.n > 0;
