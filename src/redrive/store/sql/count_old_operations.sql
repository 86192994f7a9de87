-- count_old_operations: operations that would go. $1 org, $2 now, $3 seconds.
SELECT count(*) AS n FROM redrive.operation
 WHERE org_id = $1 AND finished_at < $2::timestamptz - make_interval(secs => $3::float8);
