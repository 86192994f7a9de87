-- check_edits: the edit that a task is to send is there, and each edit belongs to a task that has been in its generation.
SELECT t.org_id, t.id, format('the task is to send edit %s, which does not exist', t.edit) AS detail
  FROM redrive.task t
 WHERE t.edit IS NOT NULL
   AND NOT EXISTS (SELECT FROM redrive.edit e WHERE e.org_id = t.org_id AND e.task_id = t.id AND e.number = t.edit)
UNION ALL
SELECT e.org_id, e.task_id, format('edit %s began generation %s, the task is in %s', e.number, e.generation,
                                   coalesce(t.generation::text, 'none: it is missing'))
  FROM redrive.edit e LEFT JOIN redrive.task t ON t.org_id = e.org_id AND t.id = e.task_id
 WHERE t.id IS NULL OR e.generation > t.generation
 LIMIT 11;
