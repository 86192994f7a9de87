-- choose_letter_systems: as choose_letter_types, for external systems. (Not NULL is said for the index, which has no others.)
WITH RECURSIVE step AS (
  (SELECT d.external_system AS value, 1 AS place, starts_with(d.external_system, $3)::int AS found
     FROM redrive.dead_letter d
    WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.external_system >= (SELECT $3::text)
      AND d.external_system IS NOT NULL
    ORDER BY d.external_system LIMIT 1)
  UNION ALL
  SELECT n.external_system, s.place + 1, s.found + starts_with(n.external_system, $3)::int
    FROM step s CROSS JOIN LATERAL (
      SELECT d.external_system FROM redrive.dead_letter d
       WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.external_system > s.value
         AND d.external_system IS NOT NULL
       ORDER BY d.external_system LIMIT 1) n
   WHERE s.place < $5 AND s.found <= $4)
SELECT ARRAY(SELECT value FROM step WHERE starts_with(value, $3) ORDER BY place) AS choices,
       (SELECT count(*) FROM step) < $5 AS is_whole;
