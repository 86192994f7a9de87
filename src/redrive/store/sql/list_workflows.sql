-- list_workflows: those in force, by name. $1 org, $2 after, $3 limit.
SELECT w.* FROM redrive.workflow w
 WHERE w.org_id = $1 AND w.retired_at IS NULL AND ($2::text IS NULL OR w.name > $2::text)
 ORDER BY w.name LIMIT $3;
