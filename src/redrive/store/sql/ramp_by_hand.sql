-- ramp_by_hand: a person lifts an open breaker. Answers what it was where that changed something,
-- and wakes the workers. $1 now (NULL: the database's clock), $2 org, $3 endpoint.
WITH before AS MATERIALIZED (
  SELECT s.org_id, s.endpoint_id, s.breaker FROM redrive.endpoint_state s
   WHERE s.org_id = $2 AND s.endpoint_id = $3 AND s.breaker = 'open' FOR UPDATE),
ramped AS (
  UPDATE redrive.endpoint_state s SET breaker = 'ramping', breaker_since = coalesce($1::timestamptz, clock_timestamp()), breaker_reason = NULL
    FROM before WHERE s.org_id = before.org_id AND s.endpoint_id = before.endpoint_id
  RETURNING before.breaker)
SELECT breaker, pg_notify('redrive_due', '')::text AS told FROM ramped;
