-- done_outputs: what the steps before one left. $1 org, $2 run, $3 index.
SELECT s.name, s.output, s.output_is_cut FROM redrive.step s
 WHERE s.org_id = $1 AND s.run_id = $2 AND s.index < $3 AND s.done_at IS NOT NULL ORDER BY s.index;
