-- hold_causes: all that may hold tasks. $1 org, $2 tasks.
SELECT t.id, i.paused_at AS installation_paused_at, o.paused_at AS org_paused_at, e.name AS endpoint,
       e.paused_at AS endpoint_paused_at, e.disabled_at AS endpoint_disabled_at, s.breaker_since AS breaker_open_since
  FROM redrive.task t
  JOIN redrive.installation i ON i.singleton
  JOIN redrive.org o ON o.org_id = t.org_id
  LEFT JOIN redrive.endpoint e ON e.org_id = t.org_id AND e.id = t.endpoint_id AND e.deleted_at IS NULL
  LEFT JOIN redrive.endpoint_state s ON s.org_id = e.org_id AND s.endpoint_id = e.id AND s.breaker IN ('open', 'probing')
 WHERE t.org_id = $1 AND t.id = ANY ($2::uuid[]);
