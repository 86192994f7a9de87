-- get_endpoint_states: how endpoints do, their breakers, and whether a lane of theirs is halted; of those that nothing is known of,
-- too. $1 org, $2 endpoints.
SELECT e.id AS endpoint_id, e.kind, s.last_success_at, s.last_failure_at, s.failing_since, coalesce(s.failures, 0) AS failures,
       coalesce(s.breaker, 'closed') AS breaker, s.breaker_since, s.breaker_reason,
       EXISTS (SELECT FROM redrive.lane l WHERE l.org_id = e.org_id AND l.endpoint_id = e.id AND l.halted_at IS NOT NULL) AS is_halted
  FROM redrive.endpoint e
  LEFT JOIN redrive.endpoint_state s ON s.org_id = e.org_id AND s.endpoint_id = e.id
 WHERE e.org_id = $1 AND e.id = ANY ($2::uuid[]) AND e.deleted_at IS NULL;
