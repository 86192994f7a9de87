-- open_breaker: from now on a trickle of an endpoint's tasks is tried. Answers a row where that changed
-- something: of workers that find the same at once, one is first. No row of the endpoint's state is a closed breaker.
-- $1 now (NULL: the database's clock), $2 org, $3 endpoint, $4 what the worker took it for, $5 why.
-- A ramp that failed is no news: people and the audit were told that the breaker opened, and will be told that it closed. Where a
-- person or a success had closed it, no reason is known any more.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
news AS MATERIALIZED (
  SELECT FROM clock WHERE NOT EXISTS (
    SELECT FROM redrive.endpoint_state x WHERE x.org_id = $2 AND x.endpoint_id = $3 AND x.breaker_reason IS NOT NULL)),
opened AS (
  INSERT INTO redrive.endpoint_state AS s (org_id, endpoint_id, breaker, breaker_since, breaker_reason)
  SELECT e.org_id, e.id, 'open', clock.now, $5
    FROM clock JOIN redrive.endpoint e ON e.org_id = $2 AND e.id = $3 AND e.deleted_at IS NULL
   WHERE $4::text = 'closed'
      OR EXISTS (SELECT FROM redrive.endpoint_state x WHERE x.org_id = $2 AND x.endpoint_id = $3)
  ON CONFLICT (org_id, endpoint_id) DO UPDATE SET
     breaker = 'open', breaker_since = excluded.breaker_since, breaker_reason = excluded.breaker_reason
   WHERE s.breaker = $4 AND s.breaker <> 'open'
  RETURNING s.org_id, s.endpoint_id, s.breaker_since),
told AS (
  INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, because, before, after)
  SELECT org_id, redrive.uuid7(), breaker_since, 'engine', 'endpoint.breaker_open', 'endpoint', endpoint_id, $5,
         jsonb_build_object('breaker', $4::text), jsonb_build_object('breaker', 'open')
    FROM opened, news),
tallied AS (
  INSERT INTO redrive.tally (org_id, minute, endpoint_id, breakers)
  SELECT org_id, date_bin('1 minute', breaker_since, 'epoch'), endpoint_id, 1 FROM opened, news)
SELECT o.breaker_since, CASE WHEN EXISTS (SELECT FROM news) THEN redrive.note(
         o.org_id, 'endpoint.breaker_opened', 'warning', 'endpoint', o.endpoint_id,
         format('The breaker of endpoint "%s" opened: %s Its deliveries are tried one after another, on schedule and a few per second, until one succeeds. None is lost.',
                e.name, rtrim(left($5, 500), '. ') || '.'),
         jsonb_build_object('endpoint_id', o.endpoint_id, 'endpoint', e.name, 'reason', left($5, 500)),
         o.breaker_since) END AS notice
  FROM opened o JOIN redrive.endpoint e ON e.org_id = o.org_id AND e.id = o.endpoint_id;
