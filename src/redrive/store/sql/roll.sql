-- roll: move what is in the tally into rollups and totals, in one step: whoever reads sees it in the one or in the other. Answers how much.
-- $1 at most so many rows, $2 the most keys that a dimension of an org has in a day, $3 now (NULL: the database's clock). Under the lock
-- of lead_roll, in the same transaction: nobody else writes rollups or totals, and this statement sees all that was rolled before.
WITH mark AS MATERIALIZED (
  SELECT coalesce(max(done_to), 0) AS done_to, coalesce(max(next_to), 0) AS next_to FROM redrive.roll_mark WHERE singleton),
picked AS MATERIALIZED (
  SELECT t.seq FROM redrive.tally t WHERE t.seq > (SELECT done_to FROM mark) ORDER BY t.seq LIMIT $1),
taken AS (
  DELETE FROM redrive.tally t WHERE t.seq = ANY (ARRAY(SELECT p.seq FROM picked p)) RETURNING t.*),
-- Each row for each dimension that it has a key in. A key is known where the day has a row of it. New ones are let in while there is
-- room; all others share the key ''. What programs hand in by SQL has an external system of any length, and a key of an index has not.
keyed AS MATERIALIZED (
  SELECT t.*, d.dimension, d.key, date_bin('1 day', t.minute, 'epoch') AS day,
         d.dimension = 'all' OR EXISTS (
           SELECT FROM redrive.rollup r
            WHERE r.org_id = t.org_id AND r.dimension = d.dimension AND r.span = 'day' AND r.at = date_bin('1 day', t.minute, 'epoch')
              AND r.key = d.key) AS is_known
    FROM taken t
   CROSS JOIN LATERAL (VALUES ('all', ''), ('endpoint', t.endpoint_id::text), ('event_type', left(t.event_type, 256)),
                              ('external_system', nullif(left(t.external_system, 256), ''))) AS d(dimension, key)
   WHERE d.key IS NOT NULL AND t.deaths IS NULL AND t.breakers IS NULL),
ranked AS (
  SELECT k.*, row_number() OVER new AS place, dense_rank() OVER new AS rank
    FROM keyed k WINDOW new AS (PARTITION BY k.org_id, k.dimension, k.day, k.is_known ORDER BY k.key)),
counted AS (  -- once for all that are new, not for each of them
  SELECT k.*, CASE WHEN NOT k.is_known AND k.place = 1 THEN (
           SELECT count(*) FROM redrive.rollup r
            WHERE r.org_id = k.org_id AND r.dimension = k.dimension AND r.span = 'day' AND r.at = k.day AND r.key > '') END AS taken_keys
    FROM ranked k),
bounded AS MATERIALIZED (
  SELECT k.*, CASE WHEN k.is_known OR k.rank + max(k.taken_keys) OVER (PARTITION BY k.org_id, k.dimension, k.day, k.is_known) <= $2
                   THEN k.key ELSE '' END AS final_key
    FROM counted k),
summed AS (
  SELECT b.org_id, b.dimension, s.span, s.at, b.final_key,
         coalesce(sum(created), 0) AS created, coalesce(sum(acked), 0) AS acked, coalesce(sum(delivered), 0) AS delivered,
         coalesce(sum(failed), 0) AS failed, coalesce(sum(untried), 0) AS untried, coalesce(sum(redriven), 0) AS redriven,
         coalesce(sum(attempts), 0) AS attempts, coalesce(sum(retries), 0) AS retries,
         coalesce(sum(retried) FILTER (WHERE delivered > 0), 0) AS retried, coalesce(sum(waited), '0') AS waited,
         ARRAY[coalesce(sum(delivered) FILTER (WHERE tries = 1), 0), coalesce(sum(delivered) FILTER (WHERE tries = 2), 0),
               coalesce(sum(delivered) FILTER (WHERE tries = 3), 0), coalesce(sum(delivered) FILTER (WHERE tries = 4), 0),
               coalesce(sum(delivered) FILTER (WHERE tries = 5), 0), coalesce(sum(delivered) FILTER (WHERE tries = 6), 0),
               coalesce(sum(delivered) FILTER (WHERE tries = 7), 0), coalesce(sum(delivered) FILTER (WHERE tries = 8), 0),
               coalesce(sum(delivered) FILTER (WHERE tries = 9), 0), coalesce(sum(delivered) FILTER (WHERE tries = 10), 0),
               coalesce(sum(delivered) FILTER (WHERE tries = 11), 0)]::bigint[] AS saved,
         ARRAY[coalesce(sum(failed) FILTER (WHERE tries = 1), 0), coalesce(sum(failed) FILTER (WHERE tries = 2), 0),
               coalesce(sum(failed) FILTER (WHERE tries = 3), 0), coalesce(sum(failed) FILTER (WHERE tries = 4), 0),
               coalesce(sum(failed) FILTER (WHERE tries = 5), 0), coalesce(sum(failed) FILTER (WHERE tries = 6), 0),
               coalesce(sum(failed) FILTER (WHERE tries = 7), 0), coalesce(sum(failed) FILTER (WHERE tries = 8), 0),
               coalesce(sum(failed) FILTER (WHERE tries = 9), 0), coalesce(sum(failed) FILTER (WHERE tries = 10), 0),
               coalesce(sum(failed) FILTER (WHERE tries = 11), 0)]::bigint[] AS lost,
         -- Of an endpoint an event has one task: there, it ends with that.
         coalesce(sum(CASE b.dimension WHEN 'endpoint' THEN delivered ELSE events_delivered END), 0) AS events_delivered,
         coalesce(sum(CASE b.dimension WHEN 'endpoint' THEN failed ELSE events_failed END), 0) AS events_failed,
         coalesce(sum(CASE b.dimension WHEN 'endpoint' THEN redriven ELSE events_redriven END), 0) AS events_redriven,
         NULL::smallint[] AS wait_slots, NULL::bigint[] AS wait_counts, NULL::bigint[] AS wait_firsts
    FROM bounded b CROSS JOIN LATERAL redrive.spans_of(b.minute) s GROUP BY 1, 2, 3, 4, 5),
timed AS (
  SELECT w.org_id, w.dimension, w.span, w.at, w.final_key, array_agg(w.slot ORDER BY w.slot) AS wait_slots,
         array_agg(w.n ORDER BY w.slot) AS wait_counts, array_agg(w.firsts ORDER BY w.slot) AS wait_firsts
    FROM (SELECT b.org_id, b.dimension, s.span, s.at, b.final_key, u.slot, sum(u.n) AS n, coalesce(sum(u.n) FILTER (WHERE b.tries = 1), 0) AS firsts
            FROM bounded b CROSS JOIN LATERAL unnest(b.wait_slots, b.wait_counts) AS u(slot, n) CROSS JOIN LATERAL redrive.spans_of(b.minute) s
           GROUP BY 1, 2, 3, 4, 5, 6) w
   GROUP BY 1, 2, 3, 4, 5),
rolled AS (
  INSERT INTO redrive.rollup AS r (org_id, dimension, span, at, key, created, acked, delivered, failed, untried, redriven, attempts,
                                   retries, retried, waited, saved, lost, events_delivered, events_failed, events_redriven,
                                   wait_slots, wait_counts, wait_firsts)
  -- Both have a row for each key at most, put side by side: the engine's connections join in loops only. max: the one that is there.
  SELECT org_id, dimension, span, at, final_key, sum(created), sum(acked), sum(delivered), sum(failed), sum(untried), sum(redriven),
         sum(attempts), sum(retries), sum(retried), sum(waited), max(saved), max(lost), sum(events_delivered), sum(events_failed),
         sum(events_redriven), coalesce(max(wait_slots), '{}'), coalesce(max(wait_counts), '{}'), coalesce(max(wait_firsts), '{}')
    FROM (SELECT * FROM summed
          UNION ALL
          SELECT org_id, dimension, span, at, final_key, 0, 0, 0, 0, 0, 0, 0, 0, 0, '0', NULL, NULL, 0, 0, 0, wait_slots, wait_counts,
                 wait_firsts FROM timed) b
   GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
  ON CONFLICT (org_id, dimension, span, at, key) DO UPDATE SET
         created = r.created + excluded.created, acked = r.acked + excluded.acked, delivered = r.delivered + excluded.delivered,
         failed = r.failed + excluded.failed, untried = r.untried + excluded.untried, redriven = r.redriven + excluded.redriven,
         attempts = r.attempts + excluded.attempts, retries = r.retries + excluded.retries, retried = r.retried + excluded.retried,
         waited = r.waited + excluded.waited, saved = redrive.add_tries(r.saved, excluded.saved),
         lost = redrive.add_tries(r.lost, excluded.lost), events_delivered = r.events_delivered + excluded.events_delivered,
         events_failed = r.events_failed + excluded.events_failed, events_redriven = r.events_redriven + excluded.events_redriven,
         (wait_slots, wait_counts, wait_firsts) = (
           SELECT coalesce(array_agg(w.slot ORDER BY w.slot), '{}'), coalesce(array_agg(w.n ORDER BY w.slot), '{}'),
                  coalesce(array_agg(w.firsts ORDER BY w.slot), '{}')
             FROM (SELECT u.slot, sum(u.n)::bigint AS n, sum(u.firsts)::bigint AS firsts
                     FROM (SELECT * FROM unnest(r.wait_slots, r.wait_counts, r.wait_firsts)
                           UNION ALL SELECT * FROM unnest(excluded.wait_slots, excluded.wait_counts, excluded.wait_firsts)) AS u(slot, n, firsts)
                    GROUP BY u.slot) w)),
totalled AS (
  INSERT INTO redrive.total AS o (name, slot, n)
  SELECT v.name, v.slot, sum(v.n) FROM taken t CROSS JOIN LATERAL redrive.totals_of(t) v GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (name, slot) DO UPDATE SET n = o.n + excluded.n),
seen AS MATERIALIZED (
  SELECT count(*)::int AS n, max(seq) AS last, pg_snapshot_xmin(pg_current_snapshot()) AS oldest, pg_snapshot_xmax(pg_current_snapshot()) AS next,
         count(*) < $1 OR max(seq) >= (SELECT next_to FROM mark) AS reaches
    FROM picked),
-- See roll_mark. A number that is yet to come, from a server that this one was restored from, says nothing here.
marked AS (
  INSERT INTO redrive.roll_mark AS m (singleton, done_to, next_to, next_xid, rolled_at)
  SELECT true, 0, coalesce(seen.last, 0), seen.next, coalesce($3::timestamptz, clock_timestamp())
    FROM seen, mark WHERE seen.n > 0 OR mark.done_to < mark.next_to  -- where nothing happens, nothing is written
  ON CONFLICT (singleton) DO UPDATE SET
         done_to = CASE WHEN m.next_xid <= (SELECT oldest FROM seen) AND (SELECT reaches FROM seen) THEN m.next_to ELSE m.done_to END,
         (next_to, next_xid) = (
           SELECT CASE WHEN j.is_new THEN greatest(excluded.next_to, m.next_to) ELSE m.next_to END,
                  CASE WHEN j.is_new THEN excluded.next_xid ELSE m.next_xid END
             FROM (SELECT m.next_xid > excluded.next_xid OR m.next_xid <= seen.oldest AND seen.reaches AS is_new FROM seen) j),
         rolled_at = excluded.rolled_at)
SELECT n FROM seen;
