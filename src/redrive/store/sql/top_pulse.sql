-- top_pulse: what happened in each of the last minutes. $1 org (NULL: all), $2 now (NULL: the database's
-- clock), $3 minutes. It reads what those minutes have of rows: the key begins with the org, so each org is one look into it.
WITH clock AS MATERIALIZED (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now),
seen AS (
  SELECT p.minute AS at, sum(p.created)::bigint AS created, sum(p.delivered)::bigint AS delivered, sum(p.failed)::bigint AS failed
    FROM clock, redrive.org o
    JOIN LATERAL (
      SELECT q.* FROM redrive.pulse q
       WHERE q.org_id = o.org_id AND q.minute <= (SELECT now FROM clock)
         AND q.minute >= (SELECT date_trunc('minute', now) - ($3::int - 1) * interval '1 minute' FROM clock)) p ON true
   WHERE $1::uuid IS NULL OR o.org_id = $1
   GROUP BY p.minute)
SELECT clock.now, date_trunc('minute', clock.now) AS newest, seen.* FROM clock LEFT JOIN seen ON true ORDER BY seen.at;
