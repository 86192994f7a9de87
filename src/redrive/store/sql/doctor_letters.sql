-- doctor_letters: orgs by their open dead letters, the most first, each with its biggest cause. From what is counted on write. $1 counts looked at of each
-- org: a cause may have been counted in many shards, see top_groups.
WITH big AS MATERIALIZED (
  SELECT o.org_id, o.name, d.n
    FROM (SELECT c.org_id, sum(c.n)::bigint AS n FROM redrive.counter c WHERE c.name = 'dead.open' GROUP BY c.org_id) d
    JOIN redrive.org o ON o.org_id = d.org_id
   WHERE d.n > 0 ORDER BY d.n DESC, o.name LIMIT 20)
SELECT b.name AS org, b.n, g.fingerprint, g.n AS alike
  FROM big b
  LEFT JOIN LATERAL (
    WITH looked AS MATERIALIZED (
      SELECT l.fingerprint FROM redrive.letter_count l
       WHERE l.org_id = b.org_id AND l.state = (SELECT 'open'::text) AND l.size > 0 ORDER BY l.size DESC, l.fingerprint DESC LIMIT $1)
    SELECT c.fingerprint, k.n
      FROM (SELECT DISTINCT l.fingerprint FROM looked l) c
     CROSS JOIN LATERAL (
       SELECT sum(k.n)::bigint AS n FROM redrive.letter_count k
        WHERE k.org_id = b.org_id AND k.state = (SELECT 'open'::text) AND k.fingerprint = c.fingerprint) k
     ORDER BY k.n DESC, c.fingerprint LIMIT 1) g ON true
 ORDER BY b.n DESC, b.name;
