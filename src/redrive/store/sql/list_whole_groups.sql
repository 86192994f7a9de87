-- list_whole_groups: dead letters by what went wrong, biggest first, where whole causes are asked for: each with all of its letters, as
-- counted on write. $1 org, $2 state, $3 kind, $4 endpoint, $5 category, $6 limit, $7 groups looked at, $8 counts looked at.
--
-- The counts are found by their size, biggest first, and those of each cause then summed over its shards. Where there are more than
-- are looked at, some cause may be missed whose letters were counted in many shards and whose sum is less than so many times the
-- smallest count looked at; the janitor folds the shards into one. Letters are looked up for the causes that are shown, and of those
-- that are as big as the last of these. Kind, endpoint and category are part of the fingerprint: the newest letter tells them for
-- its group. Where there is nothing to show there is one row that says how much was looked at.
WITH looked AS MATERIALIZED (
  SELECT c.fingerprint, c.size FROM redrive.letter_count c
   WHERE c.org_id = $1 AND c.state = (SELECT $2::text) AND c.size > 0
   ORDER BY c.size DESC, c.fingerprint DESC LIMIT $8),
cause AS MATERIALIZED (
  SELECT l.fingerprint FROM looked l GROUP BY l.fingerprint ORDER BY max(l.size) DESC, l.fingerprint LIMIT $7),
counted AS MATERIALIZED (
  SELECT c.fingerprint, k.n
    FROM cause c CROSS JOIN LATERAL (
      SELECT sum(k.n)::bigint AS n FROM redrive.letter_count k
       WHERE k.org_id = $1 AND k.state = (SELECT $2::text) AND k.fingerprint = c.fingerprint) k
   WHERE k.n > 0),
matched AS MATERIALIZED (
  SELECT c.fingerprint, c.n FROM counted c
   WHERE num_nonnulls($3::text, $4::uuid, $5::text) = 0 OR EXISTS (
     SELECT FROM (
       SELECT d.kind, d.endpoint_id, d.category FROM redrive.dead_letter d
        WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint = c.fingerprint
        ORDER BY d.created_at DESC, d.task_id DESC LIMIT 1) s
      WHERE ($3::text IS NULL OR s.kind = $3) AND ($4::uuid IS NULL OR s.endpoint_id = $4)
        AND ($5::text IS NULL OR s.category = $5))),
biggest AS MATERIALIZED (
  SELECT m.fingerprint, m.n FROM matched m ORDER BY m.n DESC FETCH FIRST $6 ROWS WITH TIES),
shown AS MATERIALIZED (
  SELECT b.fingerprint, b.n, s.created_at AS last_at, s.task_id AS sample_id
    FROM biggest b CROSS JOIN LATERAL (
      SELECT d.created_at, d.task_id FROM redrive.dead_letter d
       WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint = b.fingerprint
       ORDER BY d.created_at DESC, d.task_id DESC LIMIT 1) s
   ORDER BY b.n DESC, s.created_at DESC, b.fingerprint LIMIT $6)
SELECT r.*, ended.groups, ended.is_all
  FROM (SELECT (SELECT count(*) FROM matched)::int AS groups,
               (SELECT count(*) FROM looked) < $8 AND (SELECT count(DISTINCT fingerprint) FROM looked) <= $7 AS is_all) ended
  LEFT JOIN (
    SELECT s.fingerprint, s.n, true AS is_whole, s.last_at, f.created_at AS first_at, d.kind, d.category, d.reason, d.event_type,
           d.external_system, d.endpoint_id, d.error_message, s.sample_id
      FROM shown s
     CROSS JOIN LATERAL (
       SELECT d.created_at FROM redrive.dead_letter d
        WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint = s.fingerprint
        ORDER BY d.created_at LIMIT 1) f
     CROSS JOIN LATERAL (  -- LIMIT: one by one, also where the planner knows nothing of the table yet
       SELECT * FROM redrive.dead_letter d WHERE d.org_id = $1 AND d.task_id = s.sample_id LIMIT 1) d) r ON true
 ORDER BY r.n DESC, r.last_at DESC, r.fingerprint;
