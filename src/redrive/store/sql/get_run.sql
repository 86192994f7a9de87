-- get_run: with its definition as people see it. $1 org, $2 run.
SELECT r.*, w.shown, w.bindings FROM redrive.run r JOIN redrive.workflow w ON w.org_id = r.org_id AND w.id = r.workflow_id
 WHERE r.org_id = $1 AND r.id = $2;
