-- open_breaker: from now on all tasks of an endpoint wait, until a probe is let through. Answers a row where that changed
-- something: of workers that find the same at once, one is first. No row of the endpoint's state is a closed breaker.
-- $1 now (NULL: the database's clock), $2 org, $3 endpoint, $4 what the worker took it for, $5 seconds until the probe, $6 why.
-- A probe that failed is no news: people and the audit were told that the breaker opened, and will be told that it closed.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
opened AS (
  INSERT INTO redrive.endpoint_state AS s (org_id, endpoint_id, breaker, breaker_since, breaker_reason, probe_at, opens)
  SELECT e.org_id, e.id, 'open', clock.now, $6, clock.now + make_interval(secs => $5), 1
    FROM clock JOIN redrive.endpoint e ON e.org_id = $2 AND e.id = $3 AND e.deleted_at IS NULL
   WHERE $4::text = 'closed'
      OR EXISTS (SELECT FROM redrive.endpoint_state x WHERE x.org_id = $2 AND x.endpoint_id = $3)
  ON CONFLICT (org_id, endpoint_id) DO UPDATE SET
     breaker = 'open', breaker_since = excluded.breaker_since, breaker_reason = excluded.breaker_reason,
     probe_at = excluded.probe_at, opens = least(s.opens + 1, 1000000)
   WHERE s.breaker = $4 AND s.breaker <> 'open'
  RETURNING s.org_id, s.endpoint_id, s.breaker_since, s.opens),
told AS (
  INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, because, before, after)
  SELECT org_id, redrive.uuid7(), breaker_since, 'engine', 'endpoint.breaker_open', 'endpoint', endpoint_id, $6,
         jsonb_build_object('breaker', $4::text), jsonb_build_object('breaker', 'open')
    FROM opened WHERE $4 <> 'probing'),
tallied AS (
  INSERT INTO redrive.tally (org_id, minute, endpoint_id, breakers)
  SELECT org_id, date_bin('1 minute', breaker_since, 'epoch'), endpoint_id, 1 FROM opened WHERE $4 <> 'probing')
SELECT o.opens, CASE WHEN $4 <> 'probing' THEN redrive.note(
         o.org_id, 'endpoint.breaker_opened', 'warning', 'endpoint', o.endpoint_id,
         format('The breaker of endpoint "%s" opened: %s Its deliveries wait, and none is lost. One of them is tried from time to time; when it comes through, they go on.',
                e.name, rtrim(left($6, 500), '. ') || '.'),
         jsonb_build_object('endpoint_id', o.endpoint_id, 'endpoint', e.name, 'reason', left($6, 500), 'opens', o.opens),
         o.breaker_since) END AS notice
  FROM opened o JOIN redrive.endpoint e ON e.org_id = o.org_id AND e.id = o.endpoint_id;
