-- list_retry_queue: soonest next retry first. $1 org, $2 status, $3 event type as a LIKE pattern, $4 external system, $5 endpoint,
-- $6 category, $7 text, $8 and $9 after, $10 limit, $11 how many entries to look at.
--
-- As list_dead_letters: the index is read in its order, filters are asked of at most $11 entries, and every row tells where that
-- ended; where nothing matches there is one row without an id. What the last failure was stands in the attempts: it is looked
-- up only for the category and the text, and only where all else matches.
WITH looked AS MATERIALIZED (
  SELECT t.id, t.due_at,
         ($2::text IS NULL OR (t.state = 'leased') = ($2 = 'in_progress'))
           AND ($3::text IS NULL OR t.event_type LIKE $3)
           AND ($4::text IS NULL OR t.external_system = $4)
           AND ($5::uuid IS NULL OR t.endpoint_id = $5)
           AND (num_nonnulls($6::text, $7::text) = 0 OR ($6::text IS NULL AND t.event_type ILIKE $7) OR (
             SELECT ($6::text IS NULL OR f.category = $6)
                    AND ($7::text IS NULL OR f.error_message ILIKE $7 OR t.event_type ILIKE $7)
               FROM redrive.attempt f
              WHERE f.org_id = t.org_id AND f.task_id = t.id AND f.result IN ('failed', 'lost')
              ORDER BY f.fence DESC LIMIT 1)) AS matches
    FROM redrive.task t
   WHERE t.org_id = $1 AND t.open AND t.attempts > 0
     AND ($8::timestamptz IS NULL OR (t.due_at, t.id) > ($8, $9::uuid))
   ORDER BY t.due_at, t.id LIMIT $11),
matched AS MATERIALIZED (
  SELECT l.id FROM looked l WHERE l.matches ORDER BY l.due_at, l.id LIMIT $10),
ended AS MATERIALIZED (
  SELECT l.due_at AS looked_at, l.id AS looked_id, (SELECT count(*) FROM looked) AS looked
    FROM looked l ORDER BY l.due_at DESC, l.id DESC LIMIT 1)
SELECT r.*, ended.looked_at, ended.looked_id, ended.looked
  FROM ended LEFT JOIN (
    SELECT e.* FROM matched m JOIN redrive.task_entry e ON e.org_id = $1 AND e.id = m.id) r ON true
 ORDER BY r.due_at, r.id;
