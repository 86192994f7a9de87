-- pulse: what happened in each bucket of a window, and how many tasks are open at the same moment; empty buckets are left out.
-- $1 org, $2 now, $3 length of a bucket, $4 how many. One row at least, without a bucket where nothing happened.
-- It reads what the window has of minutes: about two hours of them (times the shards in use), before that quarters of an hour.
WITH clock AS MATERIALIZED (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now),
seen AS (
  SELECT date_bin($3::interval, p.minute, 'epoch') AS at, sum(created)::bigint AS created, sum(opened)::bigint AS opened,
         sum(delivered)::bigint AS delivered, sum(failed)::bigint AS failed
    FROM redrive.pulse p
   WHERE p.org_id = $1 AND p.minute <= (SELECT now FROM clock)
     AND p.minute >= (SELECT date_bin($3::interval, now, 'epoch') - ($4::int - 1) * $3::interval FROM clock)
   GROUP BY 1)
SELECT clock.now, date_bin($3::interval, clock.now, 'epoch') AS newest, seen.*,
       (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c
         WHERE c.org_id = $1 AND c.name IN ('task.waiting', 'task.leased', 'task.held')) AS open
  FROM clock LEFT JOIN seen ON true
 ORDER BY seen.at;
