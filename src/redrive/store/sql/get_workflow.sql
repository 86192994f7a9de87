-- get_workflow: the version in force, or that of a number. $1 org, $2 name, $3 version (NULL: the one in force).
SELECT w.*, (SELECT count(*) FROM redrive.workflow v WHERE v.org_id = w.org_id AND v.name = w.name) AS versions
  FROM redrive.workflow w
 WHERE w.org_id = $1 AND w.name = $2 AND CASE WHEN $3::int IS NULL THEN w.retired_at IS NULL ELSE w.version = $3::int END;
