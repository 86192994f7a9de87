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
rolled AS (
  INSERT INTO redrive.rollup AS r (org_id, dimension, span, at, key, created, acked, delivered, failed, untried, redriven, attempts,
                                   retries, retried, waited, saved, lost, waits)
  SELECT b.org_id, b.dimension, s.span, s.at, b.final_key,
         coalesce(sum(created), 0), coalesce(sum(acked), 0), coalesce(sum(delivered), 0), coalesce(sum(failed), 0),
         coalesce(sum(untried), 0), coalesce(sum(redriven), 0), coalesce(sum(attempts), 0), coalesce(sum(retries), 0),
         coalesce(sum(retried) FILTER (WHERE delivered > 0), 0), coalesce(sum(waited), '0'),
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
         ARRAY[coalesce(sum(delivered) FILTER (WHERE wait = 1), 0), coalesce(sum(delivered) FILTER (WHERE wait = 2), 0),
               coalesce(sum(delivered) FILTER (WHERE wait = 3), 0), coalesce(sum(delivered) FILTER (WHERE wait = 4), 0),
               coalesce(sum(delivered) FILTER (WHERE wait = 5), 0), coalesce(sum(delivered) FILTER (WHERE wait = 6), 0),
               coalesce(sum(delivered) FILTER (WHERE wait = 7), 0), coalesce(sum(delivered) FILTER (WHERE wait = 8), 0),
               coalesce(sum(delivered) FILTER (WHERE wait = 9), 0), coalesce(sum(delivered) FILTER (WHERE wait = 10), 0),
               coalesce(sum(delivered) FILTER (WHERE wait = 11), 0), coalesce(sum(delivered) FILTER (WHERE wait = 12), 0),
               coalesce(sum(delivered) FILTER (WHERE wait = 13), 0), coalesce(sum(delivered) FILTER (WHERE wait = 14), 0),
               coalesce(sum(delivered) FILTER (WHERE wait = 15), 0), coalesce(sum(delivered) FILTER (WHERE wait = 16), 0)]::bigint[] AS waits
    FROM bounded b
   CROSS JOIN LATERAL (VALUES ('minute', b.minute), ('hour', date_bin('1 hour', b.minute, 'epoch')), ('day', b.day)) AS s(span, at)
   GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
  ON CONFLICT (org_id, dimension, span, at, key) DO UPDATE SET
         created = r.created + excluded.created, acked = r.acked + excluded.acked, delivered = r.delivered + excluded.delivered,
         failed = r.failed + excluded.failed, untried = r.untried + excluded.untried, redriven = r.redriven + excluded.redriven,
         attempts = r.attempts + excluded.attempts, retries = r.retries + excluded.retries, retried = r.retried + excluded.retried,
         waited = r.waited + excluded.waited, saved = redrive.add_tries(r.saved, excluded.saved),
         lost = redrive.add_tries(r.lost, excluded.lost), waits = redrive.add_waits(r.waits, excluded.waits)),
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
