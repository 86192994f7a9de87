-- alert_transactions: transactions that have been open for longest. $1 now, $2 seconds that one must be old to be looked at, $3 limit.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT t.pid, t.application, t.usename AS "user", t.state, t.since, extract(epoch FROM clock.now - t.since)::float8 AS age_s
  FROM clock, redrive.open_transactions(clock.now - make_interval(secs => $2::float8), $3) t ORDER BY t.since;
