-- group_trends: how many dead letters of each cause came when. $1 org, $2 state, $3 fingerprints, $4 since, $5 until,
-- $6 length of a bucket in seconds, $7 letters counted at first of each, $8 letters counted again in all.
--
-- As list_groups: of each cause the newest $7 letters are counted, and those with more share $8 in a second count. `most` is what
-- a cause was given: where it has as many, there may be more. (By date_bin, as letter_arrivals.)
WITH cause AS MATERIALIZED (
  SELECT DISTINCT u.fingerprint FROM unnest($3::text[]) AS u(fingerprint)),
counted AS MATERIALIZED (
  SELECT c.fingerprint, k.seen
    FROM cause c CROSS JOIN LATERAL (
      SELECT count(*) AS seen
        FROM (SELECT FROM redrive.dead_letter d
               WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint = c.fingerprint
                 AND d.created_at >= $4 AND d.created_at < $5
               ORDER BY d.created_at DESC LIMIT $7) x) k),
share AS MATERIALIZED (
  SELECT greatest($8::bigint / greatest(count(*), 1), $7) AS most FROM counted WHERE seen = $7)
SELECT c.fingerprint, round(date_part('epoch', b.begins - $4::timestamptz) / $6::float8)::int AS bucket, b.n, b.oldest, s.most
  FROM counted c CROSS JOIN share s CROSS JOIN LATERAL (
    SELECT date_bin(make_interval(secs => $6::float8), x.created_at, $4::timestamptz) AS begins, count(*)::int AS n,
           min(x.created_at) AS oldest
      FROM (SELECT d.created_at FROM redrive.dead_letter d
             WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint = c.fingerprint
               AND d.created_at >= $4 AND d.created_at < $5
             ORDER BY d.created_at DESC LIMIT s.most) x
     GROUP BY 1) b;
