-- count_operations: counted up to a limit; NULL beyond it. $1 org, $2 state, $3 whether it is still active, $4 by whom, $5 the limit.
SELECT CASE WHEN count(*) <= $5 THEN count(*) END AS n FROM (
  SELECT FROM redrive.operation o
   WHERE o.org_id = $1 AND ($2::text IS NULL OR o.state = $2) AND ($3::bool IS NULL OR (o.finished_at IS NULL) = $3)
     AND ($4::text IS NULL OR o.actor = $4) LIMIT $5 + 1) c;
