-- reset_endpoint_state: what was known of an endpoint counts no more, since a person changed where it leads or enabled it.
-- What was seen last stays to be read. $1 org, $2 endpoint.
UPDATE redrive.endpoint_state SET failing_since = NULL, failures = 0, breaker = 'closed', breaker_since = clock_timestamp(),
       breaker_reason = NULL
 WHERE org_id = $1 AND endpoint_id = $2 AND (failing_since IS NOT NULL OR breaker <> 'closed');
