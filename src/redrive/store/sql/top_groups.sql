-- top_groups: the biggest causes of open dead letters, each with its newest letter. $1 org (NULL: all), $2 limit, $3 counts looked at of each org. By what
-- is counted on write, the biggest counts first, summed over their shards. A cause may have 65 of them until the janitor folds them into one: what is
-- looked at must be many times what is shown, or one cause hides the others, and one of many small counts is hidden by others. Where there are more counts
-- that may happen still, see list_whole_groups.
SELECT o.name AS org, g.fingerprint, g.n, d.event_type, d.error_message, d.created_at AS last_at
  FROM redrive.org o
 CROSS JOIN LATERAL (
   WITH looked AS MATERIALIZED (
     SELECT b.fingerprint FROM redrive.letter_count b
      WHERE b.org_id = o.org_id AND b.state = (SELECT 'open'::text) AND b.size > 0 ORDER BY b.size DESC, b.fingerprint DESC LIMIT $3)
   SELECT c.fingerprint, k.n
     FROM (SELECT DISTINCT l.fingerprint FROM looked l) c
    CROSS JOIN LATERAL (
      SELECT sum(k.n)::bigint AS n FROM redrive.letter_count k
       WHERE k.org_id = o.org_id AND k.state = (SELECT 'open'::text) AND k.fingerprint = c.fingerprint) k
    WHERE k.n > 0 ORDER BY k.n DESC, c.fingerprint LIMIT $2) g
 CROSS JOIN LATERAL (
   SELECT x.event_type, x.error_message, x.created_at FROM redrive.dead_letter x
    WHERE x.org_id = o.org_id AND x.state = (SELECT 'open'::text) AND x.fingerprint = g.fingerprint ORDER BY x.created_at DESC LIMIT 1) d
 WHERE $1::uuid IS NULL OR o.org_id = $1
 ORDER BY g.n DESC, o.name, g.fingerprint LIMIT $2;
