-- count_old_runs: ended runs that may go, and of which no dead letter waits for a person. $1 org, $2 now.
SELECT count(*) AS n FROM redrive.run r
 WHERE r.org_id = $1 AND r.retention_s IS NOT NULL AND r.finished_at IS NOT NULL
   AND redrive.goes_at(r.finished_at, r.retention_s) <= $2::timestamptz
     AND NOT EXISTS (
       SELECT FROM redrive.task t JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
        WHERE t.org_id = $1 AND t.run_id = r.id AND d.state = 'open');
