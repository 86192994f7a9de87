-- hold_causes: what holds tasks, or will when they are due, and which breaker keeps a due one back. $1 org, $2 tasks, $3 now.
SELECT t.id, i.paused_at AS installation_paused_at, o.paused_at AS org_paused_at, e.name AS endpoint,
       e.paused_at AS endpoint_paused_at, e.disabled_at AS endpoint_disabled_at,
       CASE WHEN t.state = 'waiting' AND t.behind IS NULL AND t.due_at <= coalesce($3::timestamptz, clock_timestamp())
            THEN s.breaker END AS breaker
  FROM redrive.task t
  JOIN redrive.installation i ON i.singleton
  JOIN redrive.org o ON o.org_id = t.org_id
  LEFT JOIN redrive.endpoint e ON e.org_id = t.org_id AND e.id = t.endpoint_id AND e.deleted_at IS NULL
  LEFT JOIN redrive.endpoint_state s ON s.org_id = e.org_id AND s.endpoint_id = e.id AND s.breaker <> 'closed'
 WHERE t.org_id = $1 AND t.id = ANY ($2::uuid[]);
