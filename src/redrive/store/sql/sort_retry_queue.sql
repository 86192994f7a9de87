-- sort_retry_queue: a page of the retry queue sorted by any column. $1 to $7 as for list_retry_queue, $8 most entries, $9 column,
-- $10 whether it descends, $11 and $12 after, $13 limit. As sort_dead_letters: asked only where few match.
WITH found AS MATERIALIZED (
  SELECT t.id,
         left(CASE $9::text
                WHEN 'event_type' THEN t.event_type
                WHEN 'external_system' THEN coalesce(t.external_system, '')
                WHEN 'retry_count' THEN lpad(t.attempts::text, 10, '0')
                WHEN 'created_at' THEN to_char(t.received_at AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')
                ELSE CASE WHEN t.due_at = 'infinity' THEN '~' ELSE to_char(t.due_at AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS') END
              END, 100) COLLATE "C" AS key
    FROM redrive.task t
   WHERE t.org_id = $1 AND t.open AND t.attempts > 0
     AND ($2::text IS NULL OR (t.state = 'leased') = ($2 = 'in_progress'))
           AND ($3::text IS NULL OR t.event_type LIKE $3)
           AND ($4::text IS NULL OR t.external_system = $4)
           AND ($5::uuid IS NULL OR t.endpoint_id = $5)
           AND (num_nonnulls($6::text, $7::text) = 0 OR ($6::text IS NULL AND t.event_type ILIKE $7) OR (
             SELECT ($6::text IS NULL OR f.category = $6)
                    AND ($7::text IS NULL OR f.error_message ILIKE $7 OR t.event_type ILIKE $7)
               FROM redrive.attempt f
              WHERE f.org_id = t.org_id AND f.task_id = t.id AND f.result IN ('failed', 'lost')
              ORDER BY f.fence DESC LIMIT 1))
   LIMIT $8),
shown AS MATERIALIZED (
  SELECT f.* FROM found f
   WHERE $11::text IS NULL
      OR CASE WHEN $10::boolean THEN (f.key, f.id) < ($11 COLLATE "C", $12::uuid) ELSE (f.key, f.id) > ($11 COLLATE "C", $12) END
   ORDER BY CASE WHEN $10 THEN f.key END DESC, CASE WHEN $10 THEN f.id END DESC, f.key, f.id LIMIT $13)
SELECT e.*, s.key AS sort_key
  FROM shown s JOIN redrive.task_entry e ON e.org_id = $1 AND e.id = s.id
 ORDER BY CASE WHEN $10 THEN s.key END DESC, CASE WHEN $10 THEN s.id END DESC, s.key, s.id;
