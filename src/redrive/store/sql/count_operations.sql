-- count_operations: counted up to a limit; NULL beyond it. $1 org, $2 state.
SELECT CASE WHEN count(*) <= 100000 THEN count(*) END AS n FROM (
  SELECT FROM redrive.operation o WHERE o.org_id = $1 AND ($2::text IS NULL OR o.state = $2) LIMIT 100001) c;
