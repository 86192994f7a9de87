-- top_waits: how long deliveries of the last minutes took, by slot, what is not rolled yet included. $1 org (NULL: all), $2 now (NULL: the
-- database's clock), $3 minutes. The key of rollups begins with the org, so each org is one look into it.
WITH clock AS MATERIALIZED (
  SELECT c.now, date_trunc('minute', c.now) - ($3::int - 1) * interval '1 minute' AS since
    FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) c),
found AS (
  SELECT r.wait_slots, r.wait_counts
    FROM redrive.org o
    JOIN LATERAL (
      SELECT q.wait_slots, q.wait_counts FROM redrive.rollup q
       WHERE q.org_id = o.org_id AND q.dimension = 'all' AND q.span = 'minute'
         AND q.at >= (SELECT since FROM clock) AND q.at <= (SELECT now FROM clock)) r ON true
   WHERE $1::uuid IS NULL OR o.org_id = $1
  UNION ALL
  SELECT u.wait_slots, u.wait_counts FROM redrive.unrolled u
   WHERE ($1::uuid IS NULL OR u.org_id = $1) AND u.minute >= (SELECT since FROM clock) AND u.minute <= (SELECT now FROM clock))
SELECT w.slot, sum(w.n)::bigint AS n FROM found f CROSS JOIN LATERAL unnest(f.wait_slots, f.wait_counts) AS w(slot, n) GROUP BY w.slot;
