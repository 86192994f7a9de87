-- analytics_by_key: what happened in a window to each key of a dimension, those with most first; all others, and those beyond the bound
-- of keys of a day, are one row with the key ''. What is not rolled yet is included.
-- $1 org, $2 now, $3 length of a bucket, $4 how many, $5 the span of the rollups that is read, $6 dimension, $7 at most so many keys,
-- $8 whether by failures, else by all that ended (then by what was created: what has no end yet).
WITH clock AS MATERIALIZED (
  SELECT c.now, date_bin($3::interval, c.now, 'epoch') - ($4::int - 1) * $3::interval AS since
    FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) c),
found AS MATERIALIZED (
  SELECT key, created, acked, delivered, failed, untried, redriven, attempts, retries, retried, waited, saved, lost,
         events_delivered, events_failed, events_redriven,
         wait_slots, wait_counts, wait_firsts
    FROM redrive.rollup
   WHERE org_id = $1 AND dimension = $6 AND span = $5 AND at >= (SELECT since FROM clock) AND at <= (SELECT now FROM clock)
  UNION ALL
  SELECT CASE $6 WHEN 'endpoint' THEN endpoint_id::text WHEN 'event_type' THEN event_type ELSE nullif(external_system, '') END,
         created, acked, delivered, failed, untried, redriven, attempts, retries, retried, waited, saved, lost,
         CASE $6 WHEN 'endpoint' THEN delivered ELSE events_delivered END, CASE $6 WHEN 'endpoint' THEN failed ELSE events_failed END,
         CASE $6 WHEN 'endpoint' THEN redriven ELSE events_redriven END,
         wait_slots, wait_counts, wait_firsts
    FROM redrive.unrolled
   WHERE org_id = $1 AND minute >= (SELECT since FROM clock) AND minute <= (SELECT now FROM clock)),
keyed AS MATERIALIZED (
  SELECT r.key,
         sum(r.created)::bigint AS created, sum(r.acked)::bigint AS acked, sum(r.delivered)::bigint AS delivered, sum(r.failed)::bigint AS failed,
         sum(r.untried)::bigint AS untried, sum(r.redriven)::bigint AS redriven, sum(r.attempts)::bigint AS attempts,
         sum(r.retries)::bigint AS retries, sum(r.retried)::bigint AS retried, sum(r.waited) AS waited,
         sum(r.events_delivered)::bigint AS events_delivered, sum(r.events_failed)::bigint AS events_failed,
         sum(r.events_redriven)::bigint AS events_redriven,
         ARRAY[sum(r.saved[1]), sum(r.saved[2]), sum(r.saved[3]), sum(r.saved[4]), sum(r.saved[5]), sum(r.saved[6]),
               sum(r.saved[7]), sum(r.saved[8]), sum(r.saved[9]), sum(r.saved[10]), sum(r.saved[11])]::bigint[] AS saved,
         ARRAY[sum(r.lost[1]), sum(r.lost[2]), sum(r.lost[3]), sum(r.lost[4]), sum(r.lost[5]), sum(r.lost[6]),
               sum(r.lost[7]), sum(r.lost[8]), sum(r.lost[9]), sum(r.lost[10]), sum(r.lost[11])]::bigint[] AS lost
    FROM found r WHERE r.key IS NOT NULL GROUP BY 1),
ranked AS MATERIALIZED (
  SELECT k.*, row_number() OVER (
           ORDER BY k.key = '', CASE WHEN $8 THEN k.failed END DESC NULLS LAST, k.delivered + k.failed DESC, k.created DESC, k.key) AS rank
    FROM keyed k),
listed AS MATERIALIZED (SELECT coalesce(array_agg(r.key), '{}') AS keys FROM ranked r WHERE r.rank <= $7),
timed AS MATERIALIZED (
  SELECT w.key, array_agg(w.slot) AS wait_slots, array_agg(w.n) AS wait_counts, array_agg(w.firsts) AS wait_firsts
    FROM (SELECT CASE WHEN f.key = ANY ((SELECT keys FROM listed)::text[]) THEN f.key ELSE '' END AS key, u.slot, sum(u.n)::bigint AS n,
                 coalesce(sum(u.firsts), 0)::bigint AS firsts
            FROM found f CROSS JOIN LATERAL unnest(f.wait_slots, f.wait_counts, f.wait_firsts) AS u(slot, n, firsts)
           WHERE f.key IS NOT NULL GROUP BY 1, 2) w
   GROUP BY 1),
shown AS MATERIALIZED (
  SELECT CASE WHEN r.rank <= $7 THEN r.key ELSE '' END AS key, min(r.rank) AS rank, count(*) FILTER (WHERE r.key <> '')::int AS keys,
         sum(r.created)::bigint AS created, sum(r.acked)::bigint AS acked, sum(r.delivered)::bigint AS delivered, sum(r.failed)::bigint AS failed,
         sum(r.untried)::bigint AS untried, sum(r.redriven)::bigint AS redriven, sum(r.attempts)::bigint AS attempts,
         sum(r.retries)::bigint AS retries, sum(r.retried)::bigint AS retried, sum(r.waited) AS waited,
         sum(r.events_delivered)::bigint AS events_delivered, sum(r.events_failed)::bigint AS events_failed,
         sum(r.events_redriven)::bigint AS events_redriven,
         ARRAY[sum(r.saved[1]), sum(r.saved[2]), sum(r.saved[3]), sum(r.saved[4]), sum(r.saved[5]), sum(r.saved[6]),
               sum(r.saved[7]), sum(r.saved[8]), sum(r.saved[9]), sum(r.saved[10]), sum(r.saved[11])]::bigint[] AS saved,
         ARRAY[sum(r.lost[1]), sum(r.lost[2]), sum(r.lost[3]), sum(r.lost[4]), sum(r.lost[5]), sum(r.lost[6]),
               sum(r.lost[7]), sum(r.lost[8]), sum(r.lost[9]), sum(r.lost[10]), sum(r.lost[11])]::bigint[] AS lost
    FROM ranked r GROUP BY 1)
SELECT s.*, t.wait_slots, t.wait_counts, t.wait_firsts FROM shown s LEFT JOIN timed t ON t.key = s.key ORDER BY s.rank;
