-- top_pulse: what happened to events in each of the last minutes, what is not rolled up yet included. $1 org (NULL: all), $2 now (NULL: the
-- database's clock), $3 minutes. The key of rollups begins with the org, so each org is one look into it.
WITH clock AS MATERIALIZED (
  SELECT c.now, date_trunc('minute', c.now) - ($3::int - 1) * interval '1 minute' AS since
    FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) c),
found AS (
  SELECT r.at, r.created, r.events_delivered + r.acked AS delivered, r.events_failed AS failed
    FROM redrive.org o
    JOIN LATERAL (
      SELECT q.* FROM redrive.rollup q
       WHERE q.org_id = o.org_id AND q.dimension = 'all' AND q.span = 'minute'
         AND q.at >= (SELECT since FROM clock) AND q.at <= (SELECT now FROM clock)) r ON true
   WHERE $1::uuid IS NULL OR o.org_id = $1
  UNION ALL
  SELECT u.minute, u.created, u.events_delivered + u.acked, u.events_failed FROM redrive.unrolled u
   WHERE ($1::uuid IS NULL OR u.org_id = $1) AND u.minute >= (SELECT since FROM clock) AND u.minute <= (SELECT now FROM clock)),
seen AS (
  SELECT f.at, sum(f.created)::bigint AS created, sum(f.delivered)::bigint AS delivered, sum(f.failed)::bigint AS failed
    FROM found f GROUP BY f.at)
SELECT clock.now, date_trunc('minute', clock.now) AS newest, seen.* FROM clock LEFT JOIN seen ON true ORDER BY seen.at;
