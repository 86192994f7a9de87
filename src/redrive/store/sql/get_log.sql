-- get_log: a task with its payload. $1 org, $2 task.
-- A payload that is larger than what may be handed in came from a broker, and is told by its size alone.
SELECT e.*, CASE WHEN octet_length(b.body) <= 1048576 THEN b.body END AS body, octet_length(b.body) AS body_bytes, b.content_type,
       t.run_id, t.step, t.lane, t.out_of_order, t.behind, b.ordering_key, l.halted_at AS lane_halted_at, l.halted_by AS lane_halted_by
  FROM redrive.task_entry e JOIN redrive.event b ON b.org_id = e.org_id AND b.id = e.event_id
  JOIN redrive.task t ON t.org_id = e.org_id AND t.id = e.id
  LEFT JOIN redrive.lane l ON l.org_id = t.org_id AND l.lane = t.lane
 WHERE e.org_id = $1 AND e.id = $2;
