-- count_runs: up to a limit. $1 org, $2 workflow, $3 status, $4 since, $5 until, $6 at most.
SELECT count(*) AS n FROM (
  SELECT FROM redrive.run r
   WHERE r.org_id = $1 AND ($2::text IS NULL OR r.workflow = $2) AND ($3::text IS NULL OR r.status = $3)
     AND ($4::timestamptz IS NULL OR r.created_at >= $4) AND ($5::timestamptz IS NULL OR r.created_at < $5)
   LIMIT $6) c;
