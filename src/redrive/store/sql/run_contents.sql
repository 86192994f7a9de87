-- run_contents: what the templates of runs' next steps see: inputs, and what the steps before left. $1 orgs, $2 runs.
SELECT u.id, u.input, o.names, o.outputs, o.cuts
  FROM unnest($1::uuid[], $2::uuid[]) AS r(org_id, id)
  JOIN redrive.run u ON u.org_id = r.org_id AND u.id = r.id
 CROSS JOIN LATERAL (
   SELECT array_agg(s.name) AS names, array_agg(s.output) AS outputs, array_agg(s.output_is_cut) AS cuts
     FROM redrive.step s WHERE s.org_id = u.org_id AND s.run_id = u.id AND s.done_at IS NOT NULL) o;
