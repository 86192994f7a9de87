-- delete_alerts: incidents that ended long ago, oldest first. $1 org, $2 now, $3 seconds, $4 limit.
WITH old AS MATERIALIZED (
  SELECT a.id FROM redrive.alert a
   WHERE a.org_id = $1 AND a.over_at < $2::timestamptz - make_interval(secs => $3::float8)
   ORDER BY a.over_at, a.id LIMIT $4),
gone AS (DELETE FROM redrive.alert a USING old WHERE a.org_id = $1 AND a.id = old.id RETURNING 1)
SELECT count(*) AS n FROM gone;
