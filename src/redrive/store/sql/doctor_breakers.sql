-- doctor_breakers: endpoints whose breaker is not closed, the longest first. $1 now (NULL: the database's clock).
SELECT o.name AS org, e.name, s.breaker AS state, s.breaker_reason AS reason, s.opens,
       extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - s.breaker_since)::float8 AS since_s
  FROM redrive.endpoint_state s
  JOIN redrive.endpoint e ON e.org_id = s.org_id AND e.id = s.endpoint_id AND e.deleted_at IS NULL AND e.disabled_at IS NULL
  JOIN redrive.org o ON o.org_id = s.org_id
 WHERE s.breaker <> 'closed' ORDER BY s.breaker_since LIMIT 50;
