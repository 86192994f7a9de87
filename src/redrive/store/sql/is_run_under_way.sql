-- is_run_under_way: whether a step of a run is open. The run was locked before, so that this holds. $1 org, $2 run.
SELECT EXISTS (SELECT FROM redrive.task t WHERE t.org_id = $1 AND t.run_id = $2 AND t.open) AS is_so;
