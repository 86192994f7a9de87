-- ahead_of_task: what one that waits behind others of its lane waits for: the head, or the dead letter that halts the lane. Neither,
-- for the moment until a worker has looked. Of a dead one: what it would wait for if it were redriven. $1 org, $2 task.
SELECT h.id AS head, l.halted_by
  FROM redrive.task t
  LEFT JOIN redrive.task h ON h.org_id = t.org_id AND h.lane = t.lane AND h.lane IS NOT NULL AND h.open AND h.behind IS NULL
  LEFT JOIN redrive.lane l ON l.org_id = t.org_id AND l.lane = t.lane AND l.halted_by <> t.id
 WHERE t.org_id = $1 AND t.id = $2 AND (t.behind OR t.state = 'dead' AND t.lane IS NOT NULL);
