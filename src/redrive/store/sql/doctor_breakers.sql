-- doctor_breakers: endpoints whose breaker is not closed, the longest first, and what they hold. $1 now (NULL: the database's clock), $2 how
-- far that is counted.
-- `breaker_since` is set anew by every ramp, `failing_since` is gone after one that came through: since when it is not closed, the audit says.
-- Where that is forgotten, or far behind, it is for as long as is known.
WITH troubled AS MATERIALIZED (
  SELECT o.name AS org, e.name, s.org_id, s.endpoint_id, s.breaker, s.breaker_reason, least(s.failing_since, s.breaker_since) AS since
    FROM redrive.endpoint_state s
    JOIN redrive.endpoint e ON e.org_id = s.org_id AND e.id = s.endpoint_id AND e.deleted_at IS NULL AND e.disabled_at IS NULL
    JOIN redrive.org o ON o.org_id = s.org_id
   WHERE s.breaker <> 'closed' ORDER BY since LIMIT 50)
SELECT t.org, t.name, t.breaker AS state, t.breaker_reason AS reason, redrive.held_by_endpoint(t.org_id, t.endpoint_id, $1::timestamptz, $2) AS held,
       extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - coalesce(opened.at, t.since))::float8 AS since_s
  FROM troubled t
  LEFT JOIN LATERAL (
     SELECT max(a.at) AS at
       FROM (SELECT * FROM redrive.audit a WHERE a.org_id = t.org_id AND a.subject_id = t.endpoint_id
              ORDER BY a.org_id DESC, a.subject_id DESC, a.id DESC LIMIT 1000) a
      WHERE a.action = 'endpoint.breaker_open' AND a.before ->> 'breaker' = 'closed') opened ON true
 ORDER BY since_s DESC;
