-- get_lanes: these lanes of an endpoint as they stand, in the order asked for; those that nobody knows are left out.
-- $1 org, $2 endpoint, $3 lanes, $4 how many waiting tasks, and gaps, are counted at most.
SELECT k.lane, CASE WHEN k.lane <> $2::uuid THEN coalesce(l.ordering_key, e.ordering_key) END AS ordering_key,
       l.halted_at, l.halted_by, g.n AS gap, d.error_message AS halted_error, d.event_type AS halted_event_type,
       h.id AS head_id, h.event_id AS head_event_id, h.event_type AS head_event_type, h.state AS head_state,
       h.attempts AS head_attempts, h.due_at AS head_due_at, a.error_message AS head_error, w.n AS waiting
  FROM unnest($3::uuid[]) WITH ORDINALITY AS k(lane, turn)
  LEFT JOIN redrive.lane l ON l.org_id = $1 AND l.lane = k.lane AND l.endpoint_id = $2::uuid
  LEFT JOIN redrive.dead_letter d ON d.org_id = $1 AND d.task_id = l.halted_by
  LEFT JOIN redrive.task h ON h.org_id = $1 AND h.lane = k.lane AND h.lane IS NOT NULL AND h.open AND h.behind IS NULL AND h.endpoint_id = $2::uuid
  LEFT JOIN LATERAL (
    SELECT f.error_message FROM redrive.attempt f
     WHERE f.org_id = $1 AND f.task_id = h.id AND f.result IN ('failed', 'lost')
     ORDER BY f.fence DESC LIMIT 1) a ON h.first_failed_at IS NOT NULL
  LEFT JOIN LATERAL (
    SELECT t.event_id FROM redrive.task t
     WHERE t.org_id = $1 AND t.lane = k.lane AND t.behind AND t.open AND t.endpoint_id = $2::uuid ORDER BY t.place LIMIT 1) f ON true
  LEFT JOIN redrive.event e ON e.org_id = $1 AND e.id = coalesce(h.event_id, f.event_id)
 CROSS JOIN LATERAL (
    SELECT count(*)::int AS n FROM (
      SELECT FROM redrive.task t
       WHERE t.org_id = $1 AND t.lane = k.lane AND t.behind AND t.open AND t.endpoint_id = $2::uuid LIMIT $4) behind) w
 CROSS JOIN LATERAL (
    SELECT count(*)::int AS n FROM (
      SELECT FROM redrive.lane_gap g WHERE g.org_id = $1 AND g.lane = k.lane LIMIT $4) untold) g
 WHERE l.lane IS NOT NULL OR e.id IS NOT NULL
 ORDER BY k.turn;
