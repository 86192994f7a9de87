-- doctor_letters: orgs by their open dead letters, the most first, each with its biggest cause. From what is counted on write.
SELECT o.name AS org, d.n, g.fingerprint, g.n AS alike
  FROM (SELECT c.org_id, sum(c.n)::bigint AS n FROM redrive.counter c WHERE c.name = 'dead.open' GROUP BY c.org_id) d
  JOIN redrive.org o ON o.org_id = d.org_id
  LEFT JOIN LATERAL (
    SELECT l.fingerprint, sum(l.n)::bigint AS n FROM redrive.letter_count l
     WHERE l.org_id = d.org_id AND l.state = 'open' AND l.fingerprint IN (
       SELECT b.fingerprint FROM redrive.letter_count b
        WHERE b.org_id = d.org_id AND b.state = 'open' AND b.size > 0 ORDER BY b.size DESC, b.fingerprint DESC LIMIT 8)
     GROUP BY l.fingerprint ORDER BY 2 DESC LIMIT 1) g ON true
 WHERE d.n > 0 ORDER BY d.n DESC, o.name LIMIT 20;
