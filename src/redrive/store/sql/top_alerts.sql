-- top_alerts: incidents that are not over, the oldest first. $1 org (NULL: all), $2 limit.
SELECT o.name AS org, a.rule, a.subject_kind, a.subject_name AS subject, a.opened_at
  FROM redrive.alert a JOIN redrive.org o ON o.org_id = a.org_id
 WHERE a.over_at IS NULL AND ($1::uuid IS NULL OR a.org_id = $1)
 ORDER BY a.opened_at LIMIT $2;
