-- lock_run: for a person's action. Its tasks were locked before. $1 org, $2 run.
SELECT * FROM redrive.run WHERE org_id = $1 AND id = $2 FOR UPDATE;
