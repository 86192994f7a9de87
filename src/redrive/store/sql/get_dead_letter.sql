-- get_dead_letter: with what a person needs to judge it. $1 org, $2 task.
-- A payload that is larger than what may be handed in came from a broker, and is told by its size alone.
SELECT e.*, d.state AS letter_state, d.category AS letter_category, d.fingerprint, d.error_message AS letter_error,
       d.failed_at, d.created_at AS letter_created_at, d.updated_at AS letter_updated_at, d.reason AS letter_reason,
       d.replays, d.replayed_at, d.replayed_by, d.replayed_because, d.replay_outcome, d.closed_at, d.closed_by,
       d.closed_because, d.generation AS letter_generation, d.config, d.payload, CASE WHEN octet_length(b.body) <= 1048576 THEN b.body END AS body, octet_length(b.body) AS body_bytes,
       b.content_type, x.number AS edit, x.body AS edited_body,
       t.run_id, t.step, t.lane, t.out_of_order, t.behind, b.ordering_key, l.halted_at AS lane_halted_at, l.halted_by AS lane_halted_by
  FROM redrive.dead_letter d
  JOIN redrive.task_entry e ON e.org_id = d.org_id AND e.id = d.task_id
  JOIN redrive.event b ON b.org_id = e.org_id AND b.id = e.event_id
  JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
  LEFT JOIN redrive.edit x ON x.org_id = d.org_id AND x.task_id = d.task_id AND x.number = t.edit
  LEFT JOIN redrive.lane l ON l.org_id = t.org_id AND l.lane = t.lane
 WHERE d.org_id = $1 AND d.task_id = $2 AND d.state <> 'deleted';
