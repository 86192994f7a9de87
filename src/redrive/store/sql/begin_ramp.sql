-- begin_ramp: a try came through, and more and more tasks are let through from now on. Answers a row where that changed
-- something. $1 now (NULL: the database's clock), $2 org, $3 endpoint.
UPDATE redrive.endpoint_state s SET breaker = 'ramping', breaker_since = coalesce($1::timestamptz, clock_timestamp())
 WHERE s.org_id = $2 AND s.endpoint_id = $3 AND s.breaker = 'open'
RETURNING s.breaker_since;
