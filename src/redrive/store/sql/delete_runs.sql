-- delete_runs: with their steps and effects; their events went before. $1 org, $2 runs.
WITH steps AS (DELETE FROM redrive.step s WHERE s.org_id = $1 AND s.run_id = ANY ($2::uuid[])),
effects AS (DELETE FROM redrive.effect e WHERE e.org_id = $1 AND e.run_id = ANY ($2::uuid[]))
DELETE FROM redrive.run r WHERE r.org_id = $1 AND r.id = ANY ($2::uuid[]);
