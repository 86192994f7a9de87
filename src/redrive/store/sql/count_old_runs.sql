-- count_old_runs: ended runs that may go. $1 org, $2 now.
SELECT count(*) AS n FROM redrive.run r
 WHERE r.org_id = $1 AND r.retention_s IS NOT NULL AND r.finished_at IS NOT NULL
   AND r.finished_at + make_interval(secs => r.retention_s) <= $2::timestamptz;
