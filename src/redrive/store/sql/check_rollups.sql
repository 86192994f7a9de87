-- check_rollups: an hour's row is the sum of its minutes, a day's that of its hours, as far back as the finer ones are kept for certain.
-- They are written in one statement: nothing can be between them. $1 now (NULL: the database's clock), $2 the grace (not needed).
WITH terms AS MATERIALIZED (
  SELECT v.fine, v.coarse, v.length,
         date_bin(v.length, coalesce($1::timestamptz, clock_timestamp()) - v.reach, 'epoch') + v.length AS since, $2::float8 AS grace
    FROM (VALUES ('minute', 'hour', interval '1 hour', interval '2 days'),
                 ('hour', 'day', interval '1 day', interval '90 days')) AS v(fine, coarse, length, reach)),
summed AS (
  SELECT r.org_id, r.dimension, t.coarse AS span, date_bin(t.length, r.at, 'epoch') AS at, r.key, sum(r.created) AS created,
         sum(r.acked) AS acked, sum(r.delivered) AS delivered, sum(r.failed) AS failed, sum(r.attempts) AS attempts,
         sum(r.retried) AS retried, sum(r.waited) AS waited,
         sum(r.events_delivered) AS events_delivered, sum(r.events_failed) AS events_failed,
         sum((SELECT sum(n) FROM unnest(r.wait_counts) n)) AS timed
    FROM terms t JOIN redrive.rollup r ON r.span = t.fine AND r.at >= t.since
   GROUP BY 1, 2, 3, 4, 5),
kept AS (
  SELECT r.org_id, r.dimension, r.span, r.at, r.key, r.created, r.acked, r.delivered, r.failed, r.attempts, r.retried, r.waited,
         r.events_delivered, r.events_failed, (SELECT sum(n) FROM unnest(r.wait_counts) n) AS timed
    FROM terms t JOIN redrive.rollup r ON r.span = t.coarse AND r.at >= t.since)
SELECT org_id, org_id AS id,
       format('the %s from %s on of %s %s says %s delivered and %s failed, what it is made of %s and %s', span, at, dimension, key,
              coalesce(k.delivered, 0), coalesce(k.failed, 0), coalesce(s.delivered, 0), coalesce(s.failed, 0)) AS detail
  FROM summed s FULL JOIN kept k USING (org_id, dimension, span, at, key)
 WHERE (s.created, s.acked, s.delivered, s.failed, s.attempts, s.retried, s.waited, s.events_delivered, s.events_failed, s.timed)
       IS DISTINCT FROM (k.created, k.acked, k.delivered, k.failed, k.attempts, k.retried, k.waited, k.events_delivered, k.events_failed, k.timed)
 ORDER BY org_id, at
 LIMIT 11;
