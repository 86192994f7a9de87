-- check_letter_state: replaying exactly while the redriven task is open; open while it is dead; closed when it is
-- dead or succeeded. A letter of a run's step may be replayed while its task is dead: the run comes to it.
SELECT d.org_id, d.task_id AS id,
       format('the dead letter is %s, its task %s in generation %s', d.state, coalesce(t.state, 'missing'), t.generation) AS detail
  FROM redrive.dead_letter d
  LEFT JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
 WHERE t.id IS NULL OR NOT CASE d.state
         WHEN 'replaying' THEN t.state IN ('waiting', 'leased', 'held') AND t.generation > 0
                               OR t.state = 'dead' AND EXISTS (
                                 SELECT FROM redrive.task o WHERE o.org_id = t.org_id AND o.run_id = t.run_id AND o.open AND o.step < t.step)
         WHEN 'open' THEN t.state = 'dead'
         WHEN 'ignored' THEN t.state = 'dead'
         ELSE t.state IN ('dead', 'succeeded') END
UNION ALL
SELECT t.org_id, t.id, format('the task is %s in generation %s and has no dead letter', t.state, t.generation)
  FROM redrive.task t
 WHERE t.generation > 0 AND t.state <> 'dead'
   AND NOT EXISTS (SELECT FROM redrive.dead_letter d WHERE d.org_id = t.org_id AND d.task_id = t.id)
 LIMIT 11;
