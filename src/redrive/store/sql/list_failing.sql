-- list_failing: endpoints that did nothing but fail for so long: between the first and the last failure that nothing
-- interrupted lies that time, so that silence is not taken for failure. The longest first. Relays are exempt: their webhooks wait until they are too old.
-- $1 now (NULL: the database's clock), $2 seconds, $3 failures at least, $4 at most.
SELECT s.org_id, s.endpoint_id, s.failing_since, s.failures, e.url
  FROM redrive.endpoint_state s
  JOIN redrive.endpoint e ON e.org_id = s.org_id AND e.id = s.endpoint_id AND e.disabled_at IS NULL AND e.deleted_at IS NULL
   AND e.kind <> 'relay'
 WHERE s.failing_since <= coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8)
   AND s.last_failure_at >= s.failing_since + make_interval(secs => $2::float8) AND s.failures >= $3
 ORDER BY s.failing_since LIMIT $4;
