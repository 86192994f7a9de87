-- list_workflow_versions: of one workflow, newest first. $1 org, $2 name, $3 limit.
SELECT w.version, w.steps, w.created_at, w.created_by, w.retired_at
  FROM redrive.workflow w WHERE w.org_id = $1 AND w.name = $2
 ORDER BY w.version DESC LIMIT $3;
