-- tail_acts: what people did since, oldest first, with what it was done to. $1 org (NULL: all), $2 since, $3 limit. For each org one look into
-- its audit. What the engine did is left out: the processes tell it themselves; and so is what moves nothing (keys, sign-ins, retention).
SELECT a.org_id, a.id, a.at, a.actor AS user_id, a.action, a.subject_kind, a.subject_id, left(a.because, 300) AS because,
       coalesce(a.correlation_id, e.correlation_id) AS correlation_id, t.id AS task, coalesce(t.event_id, e.id) AS event_id,
       coalesce(t.event_type, e.event_type) AS event_type,
       CASE a.subject_kind WHEN 'endpoint' THEN a.subject_id ELSE t.endpoint_id END AS endpoint_id
  FROM redrive.org o
 CROSS JOIN LATERAL (
   SELECT x.* FROM redrive.audit x
    WHERE x.org_id = o.org_id AND x.at >= $2::timestamptz AND x.actor <> 'engine'
      AND split_part(x.action, '.', 1) NOT IN ('session', 'key', 'user', 'retention', 'login')
    ORDER BY x.at, x.id LIMIT $3) a
  LEFT JOIN redrive.task t ON t.org_id = a.org_id AND t.id = a.subject_id AND a.subject_kind IN ('task', 'dead_letter')
  LEFT JOIN redrive.event e ON e.org_id = a.org_id AND e.id = coalesce(t.event_id, CASE WHEN a.subject_kind = 'event' THEN a.subject_id END)
 WHERE $1::uuid IS NULL OR o.org_id = $1
 ORDER BY a.at, a.id LIMIT $3;
