-- choose_letter_types: the event types among dead letters that begin with a text. $1 org, $2 state, $3 the text, $4 how many,
-- $5 most steps.
-- From one type to the next in the index, so that it costs as many steps as there are types, however many letters each has.
-- It begins where the text itself would stand. Under some collations others stand between those that begin so: they are stepped
-- over, at most $5 of them.
WITH RECURSIVE step AS (
  (SELECT d.event_type AS value, 1 AS place, starts_with(d.event_type, $3)::int AS found
     FROM redrive.dead_letter d
    WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.event_type >= (SELECT $3::text)
    ORDER BY d.event_type LIMIT 1)
  UNION ALL
  SELECT n.event_type, s.place + 1, s.found + starts_with(n.event_type, $3)::int
    FROM step s CROSS JOIN LATERAL (
      SELECT d.event_type FROM redrive.dead_letter d
       WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.event_type > s.value
       ORDER BY d.event_type LIMIT 1) n
   WHERE s.place < $5 AND s.found <= $4)
SELECT ARRAY(SELECT value FROM step WHERE starts_with(value, $3) ORDER BY place) AS choices,
       (SELECT count(*) FROM step) < $5 AS is_whole;
