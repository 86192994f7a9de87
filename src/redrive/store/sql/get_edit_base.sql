-- get_edit_base: what a further edit begins with: the original, the edit in force, how many there are. $1 org, $2 task.
SELECT b.body AS original, x.body, x.headers,
       (SELECT count(*)::int FROM redrive.edit n WHERE n.org_id = t.org_id AND n.task_id = t.id) AS edits
  FROM redrive.task t
  JOIN redrive.event b ON b.org_id = t.org_id AND b.id = t.event_id
  LEFT JOIN redrive.edit x ON x.org_id = t.org_id AND x.task_id = t.id AND x.number = t.edit
 WHERE t.org_id = $1 AND t.id = $2;
