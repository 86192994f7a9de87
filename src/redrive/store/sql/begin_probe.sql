-- begin_probe: an open breaker whose time has come lets one task through. So does one whose probe was never reported: the
-- worker that had it died. Answers a row where that changed something.
-- $1 now (NULL: the database's clock), $2 org, $3 endpoint, $4 seconds after which a probe is taken for lost.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
UPDATE redrive.endpoint_state s SET breaker = 'probing', breaker_since = clock.now, probe_at = NULL
  FROM clock
 WHERE s.org_id = $2 AND s.endpoint_id = $3
   AND (s.breaker = 'open' AND s.probe_at <= clock.now
        OR s.breaker = 'probing' AND s.breaker_since <= clock.now - make_interval(secs => $4))
RETURNING s.opens;
