-- close_breaker: the ramp is over, and nothing is in the way any more. Answers a row where that changed something.
-- $1 now (NULL: the database's clock), $2 org, $3 endpoint.
WITH closed AS (
  UPDATE redrive.endpoint_state s SET breaker = 'closed', breaker_since = coalesce($1::timestamptz, clock_timestamp()),
         breaker_reason = NULL
   WHERE s.org_id = $2 AND s.endpoint_id = $3 AND s.breaker = 'ramping'
  RETURNING s.org_id, s.endpoint_id, s.breaker_since),
audited AS (
  INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, before, after)
  SELECT org_id, redrive.uuid7(), breaker_since, 'engine', 'endpoint.breaker_close', 'endpoint', endpoint_id,
         jsonb_build_object('breaker', 'ramping'), jsonb_build_object('breaker', 'closed')
    FROM closed)
SELECT redrive.note(
         c.org_id, 'endpoint.breaker_closed', 'info', 'endpoint', c.endpoint_id,
         format('The breaker of endpoint "%s" is closed again: its deliveries go on.', e.name),
         jsonb_build_object('endpoint_id', c.endpoint_id, 'endpoint', e.name), c.breaker_since) AS notice
  FROM closed c JOIN redrive.endpoint e ON e.org_id = c.org_id AND e.id = c.endpoint_id;
