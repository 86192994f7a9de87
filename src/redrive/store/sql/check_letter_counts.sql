-- check_letter_counts: the counts of causes kept on write are what a count over all dead letters gives.
WITH counted AS (
  SELECT org_id, state, fingerprint, count(*) AS n FROM redrive.dead_letter GROUP BY 1, 2, 3),
kept AS (
  SELECT org_id, state, fingerprint, sum(n)::bigint AS n FROM redrive.letter_count GROUP BY 1, 2, 3)
SELECT org_id, org_id AS id,
       format('the count of %s letters with fingerprint %s is %s, the rows are %s', state, fingerprint, coalesce(k.n, 0),
              coalesce(c.n, 0)) AS detail
  FROM counted c FULL JOIN kept k USING (org_id, state, fingerprint)
 WHERE coalesce(c.n, 0) <> coalesce(k.n, 0)
 ORDER BY org_id, state, fingerprint
 LIMIT 11;
