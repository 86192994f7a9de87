-- analytics_over_time: what happened in each bucket of a window, in all or to one key, what is not rolled yet included, as of one moment.
-- Empty buckets are left out; one row at least, without a bucket where nothing happened. The newest row has how long deliveries of the
-- whole window took, by slot.
-- $1 org, $2 now, $3 length of a bucket, $4 how many, $5 the span of the rollups that is read, $6 dimension, $7 key.
WITH clock AS MATERIALIZED (
  SELECT c.now, date_bin($3::interval, c.now, 'epoch') AS newest,
         date_bin($3::interval, c.now, 'epoch') - ($4::int - 1) * $3::interval AS since
    FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) c),
found AS MATERIALIZED (
  SELECT at, created, acked, delivered, failed, untried, redriven, attempts, retries, retried, waited, saved, lost,
         events_delivered, events_failed, events_redriven,
         wait_slots, wait_counts, wait_firsts
    FROM redrive.rollup
   WHERE org_id = $1 AND dimension = $6 AND span = $5 AND at >= (SELECT since FROM clock) AND at <= (SELECT now FROM clock)
     AND key = $7
  UNION ALL
  SELECT minute, created, acked, delivered, failed, untried, redriven, attempts, retries, retried, waited, saved, lost,
         CASE $6 WHEN 'endpoint' THEN delivered ELSE events_delivered END, CASE $6 WHEN 'endpoint' THEN failed ELSE events_failed END,
         CASE $6 WHEN 'endpoint' THEN redriven ELSE events_redriven END,
         wait_slots, wait_counts, wait_firsts
    FROM redrive.unrolled
   WHERE org_id = $1 AND minute >= (SELECT since FROM clock) AND minute <= (SELECT now FROM clock)
     AND $7 = CASE $6 WHEN 'all' THEN '' WHEN 'endpoint' THEN endpoint_id::text WHEN 'event_type' THEN event_type
                      ELSE external_system END),
seen AS (
  SELECT date_bin($3::interval, r.at, 'epoch') AS at,
         sum(r.created)::bigint AS created, sum(r.acked)::bigint AS acked, sum(r.delivered)::bigint AS delivered, sum(r.failed)::bigint AS failed,
         sum(r.untried)::bigint AS untried, sum(r.redriven)::bigint AS redriven, sum(r.attempts)::bigint AS attempts,
         sum(r.retries)::bigint AS retries, sum(r.retried)::bigint AS retried, sum(r.waited) AS waited,
         sum(r.events_delivered)::bigint AS events_delivered, sum(r.events_failed)::bigint AS events_failed,
         sum(r.events_redriven)::bigint AS events_redriven,
         ARRAY[sum(r.saved[1]), sum(r.saved[2]), sum(r.saved[3]), sum(r.saved[4]), sum(r.saved[5]), sum(r.saved[6]),
               sum(r.saved[7]), sum(r.saved[8]), sum(r.saved[9]), sum(r.saved[10]), sum(r.saved[11])]::bigint[] AS saved,
         ARRAY[sum(r.lost[1]), sum(r.lost[2]), sum(r.lost[3]), sum(r.lost[4]), sum(r.lost[5]), sum(r.lost[6]),
               sum(r.lost[7]), sum(r.lost[8]), sum(r.lost[9]), sum(r.lost[10]), sum(r.lost[11])]::bigint[] AS lost
    FROM found r GROUP BY 1),
timed AS MATERIALIZED (
  SELECT array_agg(w.slot) AS wait_slots, array_agg(w.n) AS wait_counts, array_agg(w.firsts) AS wait_firsts
    FROM (SELECT u.slot, sum(u.n)::bigint AS n, coalesce(sum(u.firsts), 0)::bigint AS firsts
            FROM found f CROSS JOIN LATERAL unnest(f.wait_slots, f.wait_counts, f.wait_firsts) AS u(slot, n, firsts) GROUP BY 1) w)
SELECT clock.now, clock.newest, seen.*, timed.*
  FROM clock LEFT JOIN seen ON true LEFT JOIN timed ON seen.at IS NOT DISTINCT FROM (SELECT max(s.at) FROM seen s)
 ORDER BY seen.at;
