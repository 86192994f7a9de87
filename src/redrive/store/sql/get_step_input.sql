-- get_step_input: what the next try of a run's step would be given, as far as the run has come to it. $1 org, $2 run, $3 index.
SELECT coalesce(x.body, b.body) AS body
  FROM redrive.step s
  JOIN redrive.task t ON t.org_id = s.org_id AND t.id = s.task_id
  JOIN redrive.event b ON b.org_id = t.org_id AND b.id = t.event_id
  LEFT JOIN redrive.edit x ON x.org_id = t.org_id AND x.task_id = t.id AND x.number = t.edit
 WHERE s.org_id = $1 AND s.run_id = $2 AND s.index = $3;
