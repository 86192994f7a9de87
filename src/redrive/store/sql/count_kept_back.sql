-- count_kept_back: tasks that are due and that breakers keep back, as far as $2 counts for each endpoint. $1 org (NULL: all), $3 now.
SELECT coalesce(sum(redrive.kept_back(s.org_id, s.endpoint_id, $3::timestamptz, $2::bigint)), 0)::bigint AS n
  FROM redrive.endpoint_state s WHERE s.breaker <> 'closed' AND ($1::uuid IS NULL OR s.org_id = $1);
