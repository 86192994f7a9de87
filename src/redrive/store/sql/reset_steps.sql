-- reset_steps: steps that are to be run again, by another task. $1 org, $2 run, $3 indexes.
UPDATE redrive.step SET task_id = NULL, done_at = NULL, output = NULL, output_is_cut = false, problem = NULL, url = NULL, headers = NULL
 WHERE org_id = $1 AND run_id = $2 AND index = ANY ($3::int[]);
