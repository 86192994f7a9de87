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
  INSERT INTO redrive.pulse AS p (org_id, minute, shard, created, opened, delivered, failed, unjudged)
  SELECT org_id, CASE WHEN minute < terms.old THEN '-infinity' ELSE date_bin('15 minutes', minute, 'epoch') END, -1,
         sum(created), sum(opened), sum(delivered), sum(failed), sum(unjudged)
    FROM gone, terms GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (org_id, minute, shard) DO UPDATE SET
         created = p.created + excluded.created, opened = p.opened + excluded.opened, delivered = p.delivered + excluded.delivered,
         failed = p.failed + excluded.failed, unjudged = p.unjudged + excluded.unjudged)
SELECT count(*) AS n FROM gone;
