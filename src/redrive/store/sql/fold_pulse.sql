-- fold_pulse: minutes that are past become quarters of an hour without shards, and what is too old to be shown one row, so that
-- the sum over all rows stays what it was. Answers how many were folded. What a transaction still adds to is left for the next pass.
-- $1 org, $2 now, $3 seconds until a minute may be folded, $4 seconds until it is too old, $5 limit.
WITH terms AS MATERIALIZED (
  SELECT date_bin('15 minutes', coalesce($2::timestamptz, clock_timestamp()) - make_interval(secs => $3::float8), 'epoch') AS past,
         date_bin('15 minutes', coalesce($2::timestamptz, clock_timestamp()) - make_interval(secs => $4::float8), 'epoch') AS old),
picked AS MATERIALIZED (
  SELECT p.minute, p.shard FROM redrive.pulse p
   WHERE p.org_id = $1 AND p.minute > '-infinity' AND p.minute < (SELECT past FROM terms)
     AND (p.shard >= 0 OR p.minute < (SELECT old FROM terms))
   ORDER BY p.minute LIMIT $5 FOR UPDATE SKIP LOCKED),
gone AS (
  DELETE FROM redrive.pulse p USING picked WHERE p.org_id = $1 AND p.minute = picked.minute AND p.shard = picked.shard
  RETURNING p.*),
folded AS (
  INSERT INTO redrive.pulse AS p (org_id, minute, shard, created, opened, delivered, failed, retries, retried, waits, waited, unjudged)
  SELECT org_id, CASE WHEN minute < terms.old THEN '-infinity' ELSE date_bin('15 minutes', minute, 'epoch') END, -1,
         sum(created), sum(opened), sum(delivered), sum(failed),
         ARRAY[sum(retries[1]), sum(retries[2]), sum(retries[3]), sum(retries[4]), sum(retries[5]), sum(retries[6]),
               sum(retries[7]), sum(retries[8]), sum(retries[9]), sum(retries[10]), sum(retries[11])]::bigint[], sum(retried),
         ARRAY[sum(waits[1]), sum(waits[2]), sum(waits[3]), sum(waits[4]), sum(waits[5]), sum(waits[6]), sum(waits[7]),
               sum(waits[8]), sum(waits[9]), sum(waits[10]), sum(waits[11]), sum(waits[12]), sum(waits[13]),
               sum(waits[14]), sum(waits[15]), sum(waits[16])]::bigint[], sum(waited), sum(unjudged)
    FROM gone, terms GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (org_id, minute, shard) DO UPDATE SET
         created = p.created + excluded.created, opened = p.opened + excluded.opened, delivered = p.delivered + excluded.delivered,
         failed = p.failed + excluded.failed, retried = p.retried + excluded.retried, waited = p.waited + excluded.waited, unjudged = p.unjudged + excluded.unjudged,
         retries = ARRAY[p.retries[1] + excluded.retries[1], p.retries[2] + excluded.retries[2], p.retries[3] + excluded.retries[3],
               p.retries[4] + excluded.retries[4], p.retries[5] + excluded.retries[5], p.retries[6] +
               excluded.retries[6], p.retries[7] + excluded.retries[7], p.retries[8] + excluded.retries[8],
               p.retries[9] + excluded.retries[9], p.retries[10] + excluded.retries[10], p.retries[11] +
               excluded.retries[11]],
         waits = ARRAY[p.waits[1] + excluded.waits[1], p.waits[2] + excluded.waits[2], p.waits[3] + excluded.waits[3], p.waits[4] +
               excluded.waits[4], p.waits[5] + excluded.waits[5], p.waits[6] + excluded.waits[6], p.waits[7] +
               excluded.waits[7], p.waits[8] + excluded.waits[8], p.waits[9] + excluded.waits[9], p.waits[10]
               + excluded.waits[10], p.waits[11] + excluded.waits[11], p.waits[12] + excluded.waits[12],
               p.waits[13] + excluded.waits[13], p.waits[14] + excluded.waits[14], p.waits[15] +
               excluded.waits[15], p.waits[16] + excluded.waits[16]])
SELECT count(*) AS n FROM gone;
