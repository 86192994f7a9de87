-- list_deliveries: these tasks as deliveries, newest first. $1 org, $2 ids. A lease that was given back was no attempt.
SELECT t.id, t.event_id, t.event_type, t.state, t.reason, t.attempts, t.received_at, t.due_at,
       coalesce(d.error_message, f.error_message) AS error_message, a.ended_at AS last_attempt_at,
       CASE t.state WHEN 'succeeded' THEN a.ended_at END AS delivered_at
  FROM unnest($2::uuid[]) AS k(id)
  JOIN redrive.task t ON t.org_id = $1 AND t.id = k.id
  LEFT JOIN LATERAL (
    SELECT l.ended_at FROM redrive.attempt l
     WHERE l.org_id = t.org_id AND l.task_id = t.id AND l.result <> 'released' ORDER BY l.fence DESC LIMIT 1) a ON true
  LEFT JOIN LATERAL (
    SELECT l.error_message FROM redrive.attempt l
     WHERE l.org_id = t.org_id AND l.task_id = t.id AND l.result IN ('failed', 'lost')
     ORDER BY l.fence DESC LIMIT 1) f ON t.first_failed_at IS NOT NULL AND t.state <> 'succeeded'
  LEFT JOIN redrive.dead_letter d ON t.state = 'dead' AND d.org_id = t.org_id AND d.task_id = t.id
 ORDER BY t.id DESC;
