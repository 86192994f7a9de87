-- record_health: how tries of endpoints went since a worker last said so: into the history, and into what is known of each.
-- $1 now (NULL: the database's clock), then by endpoint: $2 org, $3 endpoint, $4 succeeded, $5 failed, $6 and $7 how long they
-- took together and the slowest of them, $8 seconds since the last success, $9 since the first failure behind it, $10 since the
-- last failure, $11 how many failures since $9.
-- Workers report side by side, and some late. So the last success of all is what counts: an endpoint is failing since the
-- first failure behind it that is known. Of a report or a row whose first failure came before that success, only its last
-- failure is known to have come behind.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
noted AS MATERIALIZED (
  -- In one order, whoever reports: no two of them wait for each other.
  SELECT n.org_id, n.endpoint_id, n.succeeded, n.failed, n.took_ms, n.slowest_ms, n.failures,
         clock.now - make_interval(secs => n.success_age_s) AS last_success_at,
         clock.now - make_interval(secs => n.failing_age_s) AS failing_since,
         clock.now - make_interval(secs => n.failure_age_s) AS last_failure_at,
         date_bin('5 minutes', clock.now, '2000-01-01 00:00+00') AS bucket
    FROM clock, unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[], $8::float8[],
                       $9::float8[], $10::float8[], $11::integer[])
      AS n(org_id, endpoint_id, succeeded, failed, took_ms, slowest_ms, success_age_s, failing_age_s, failure_age_s, failures)
   ORDER BY n.org_id, n.endpoint_id),
history AS (
  INSERT INTO redrive.endpoint_history AS h (org_id, endpoint_id, bucket, succeeded, failed, took_ms, slowest_ms)
  SELECT org_id, endpoint_id, bucket, succeeded, failed, took_ms, slowest_ms FROM noted
  ON CONFLICT (org_id, endpoint_id, bucket) DO UPDATE SET
     succeeded = h.succeeded + excluded.succeeded, failed = h.failed + excluded.failed,
     took_ms = h.took_ms + excluded.took_ms, slowest_ms = greatest(h.slowest_ms, excluded.slowest_ms))
INSERT INTO redrive.endpoint_state AS s (org_id, endpoint_id, last_success_at, last_failure_at, failing_since, failures)
SELECT org_id, endpoint_id, last_success_at, last_failure_at,
       CASE WHEN failing_since > coalesce(last_success_at, '-infinity') THEN failing_since END,
       CASE WHEN failing_since > coalesce(last_success_at, '-infinity') THEN failures ELSE 0 END
  FROM noted
ON CONFLICT (org_id, endpoint_id) DO UPDATE SET
   last_success_at = greatest(s.last_success_at, excluded.last_success_at),
   last_failure_at = greatest(s.last_failure_at, excluded.last_failure_at),
   (failing_since, failures) = (
     SELECT min(p.since), least(coalesce(sum(p.n), 0), 2147483647)
       FROM (SELECT coalesce(greatest(s.last_success_at, excluded.last_success_at), '-infinity') AS success_at) l
      CROSS JOIN LATERAL (VALUES
        (CASE WHEN s.failing_since > l.success_at THEN s.failing_since
              WHEN s.failing_since IS NOT NULL AND s.last_failure_at > l.success_at THEN s.last_failure_at END,
         CASE WHEN s.failing_since > l.success_at THEN s.failures ELSE 1 END),
        (CASE WHEN excluded.failing_since > l.success_at THEN excluded.failing_since
              WHEN excluded.failing_since IS NOT NULL AND excluded.last_failure_at > l.success_at THEN excluded.last_failure_at END,
         CASE WHEN excluded.failing_since > l.success_at THEN excluded.failures ELSE 1 END)) AS p(since, n)
      WHERE p.since IS NOT NULL);
