-- delete_notices: those that were told and are old, oldest first. $1 org, $2 now, $3 seconds, $4 limit.
WITH old AS MATERIALIZED (
  SELECT n.id FROM redrive.notice n
   WHERE n.org_id = $1 AND n.at < $2::timestamptz - make_interval(secs => $3::float8) AND n.told_at IS NOT NULL
   ORDER BY n.at, n.id LIMIT $4),
gone AS (DELETE FROM redrive.notice n USING old WHERE n.org_id = $1 AND n.id = old.id RETURNING 1)
SELECT count(*) AS n FROM gone;
