-- get_endpoint_state: how an endpoint does, and its breaker; of one that nothing is known of, too. $1 org, $2 endpoint.
SELECT e.id AS endpoint_id, s.last_success_at, s.last_failure_at, s.failing_since, coalesce(s.failures, 0) AS failures,
       coalesce(s.breaker, 'closed') AS breaker, s.breaker_since, s.breaker_reason, s.probe_at, coalesce(s.opens, 0) AS opens
  FROM redrive.endpoint e
  LEFT JOIN redrive.endpoint_state s ON s.org_id = e.org_id AND s.endpoint_id = e.id
 WHERE e.org_id = $1 AND e.id = $2 AND e.deleted_at IS NULL;
