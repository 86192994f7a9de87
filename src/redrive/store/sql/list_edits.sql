-- list_edits: oldest first, without the bodies. $1 org, $2 task.
SELECT e.number, e.generation, e.headers, e.diff, e.diff_is_cut, e.body IS NOT NULL AS has_body, e.at, e.by, e.because
  FROM redrive.edit e WHERE e.org_id = $1 AND e.task_id = $2 ORDER BY e.number;
