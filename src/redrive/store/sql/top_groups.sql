-- top_groups: the biggest causes of open dead letters, each with its newest letter. $1 org (NULL: all), $2 limit. Of each org the biggest, by what is
-- counted on write.
SELECT o.name AS org, g.fingerprint, g.n, d.event_type, d.error_message, d.created_at AS last_at
  FROM redrive.org o
 CROSS JOIN LATERAL (
   SELECT l.fingerprint, sum(l.n)::bigint AS n FROM redrive.letter_count l
    WHERE l.org_id = o.org_id AND l.state = 'open' AND l.fingerprint IN (
      SELECT b.fingerprint FROM redrive.letter_count b
       WHERE b.org_id = o.org_id AND b.state = 'open' AND b.size > 0 ORDER BY b.size DESC, b.fingerprint DESC LIMIT 4 * $2)
    GROUP BY l.fingerprint HAVING sum(l.n) > 0 ORDER BY 2 DESC, 1 LIMIT $2) g
 CROSS JOIN LATERAL (
   SELECT x.event_type, x.error_message, x.created_at FROM redrive.dead_letter x
    WHERE x.org_id = o.org_id AND x.state = (SELECT 'open'::text) AND x.fingerprint = g.fingerprint ORDER BY x.created_at DESC LIMIT 1) d
 WHERE $1::uuid IS NULL OR o.org_id = $1
 ORDER BY g.n DESC, o.name, g.fingerprint LIMIT $2;
