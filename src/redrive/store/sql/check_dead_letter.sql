-- check_dead_letter: every dead task has a reason and stands among the dead letters, for the death it died last.
SELECT t.org_id, t.id,
       CASE WHEN t.reason IS NULL THEN 'the task is dead without a reason'
            WHEN d.task_id IS NULL THEN format('the task is dead (%s) and has no dead letter', t.reason)
            ELSE format('the task died in generation %s (%s), its dead letter says %s (%s)', t.generation, t.reason,
                        d.generation, d.reason) END AS detail
  FROM redrive.task t
  LEFT JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
 WHERE t.state = 'dead'
   AND (t.reason IS NULL OR d.task_id IS NULL OR d.generation <> t.generation OR d.reason <> t.reason)
 LIMIT 11;
