-- pulse: what happened in each bucket of a window, and how many tasks are open at the same moment; empty buckets are left out.
-- $1 org, $2 now, $3 length of a bucket, $4 how many. One row at least, without a bucket where nothing happened.
-- It reads what the window has of minutes: about two hours of them (times the shards in use), before that quarters of an hour.
WITH clock AS MATERIALIZED (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now),
seen AS (
  SELECT date_bin($3::interval, p.minute, 'epoch') AS at, sum(created)::bigint AS created, sum(opened)::bigint AS opened,
         sum(delivered)::bigint AS delivered, sum(failed)::bigint AS failed,
         ARRAY[sum(retries[1]), sum(retries[2]), sum(retries[3]), sum(retries[4]), sum(retries[5]), sum(retries[6]),
               sum(retries[7]), sum(retries[8]), sum(retries[9]), sum(retries[10]), sum(retries[11])]::bigint[] AS retries,
         ARRAY[sum(waits[1]), sum(waits[2]), sum(waits[3]), sum(waits[4]), sum(waits[5]), sum(waits[6]), sum(waits[7]),
               sum(waits[8]), sum(waits[9]), sum(waits[10]), sum(waits[11]), sum(waits[12]), sum(waits[13]),
               sum(waits[14]), sum(waits[15]), sum(waits[16])]::bigint[] AS waits
    FROM redrive.pulse p
   WHERE p.org_id = $1 AND p.minute <= (SELECT now FROM clock)
     AND p.minute >= (SELECT date_bin($3::interval, now, 'epoch') - ($4::int - 1) * $3::interval FROM clock)
   GROUP BY 1)
SELECT clock.now, date_bin($3::interval, clock.now, 'epoch') AS newest, seen.*,
       (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c
         WHERE c.org_id = $1 AND c.name IN ('task.waiting', 'task.leased', 'task.held')) AS open
  FROM clock LEFT JOIN seen ON true
 ORDER BY seen.at;
