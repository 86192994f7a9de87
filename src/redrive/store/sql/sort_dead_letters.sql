-- sort_dead_letters: a page of dead letters sorted by any column. $1 to $15 as for list_dead_letters, $16 the filter that chooses
-- the index, $17 most letters, $18 and $19 first failed since and until, $20 column, $21 whether it descends, $22 and $23 after,
-- $24 limit.
--
-- All that match are read and sorted: asked only where count_dead_letters has found them to be few. Keys are texts that sort as
-- their values do; equal ones go by id.
WITH found AS MATERIALIZED (
  SELECT d.ctid AS place, d.task_id,
         left(CASE $20::text
                WHEN 'event_type' THEN d.event_type
                WHEN 'external_system' THEN coalesce(d.external_system, '')
                WHEN 'error' THEN d.category || ' ' || d.error_message
                WHEN 'retry_count' THEN (
                  SELECT lpad(t.attempts::text, 10, '0') FROM redrive.task t WHERE t.org_id = d.org_id AND t.id = d.task_id)
                ELSE to_char(CASE $20 WHEN 'failed_at' THEN d.failed_at ELSE coalesce(d.first_failed_at, d.created_at) END AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')
              END, 100) COLLATE "C" AS key
    FROM redrive.dead_letter d
   WHERE d.org_id = $1 AND d.state = (SELECT $2::text)
     AND ($16::text IS DISTINCT FROM 'kind' OR d.kind = (SELECT $3::text))
     AND ($16::text IS DISTINCT FROM 'event_type' OR d.event_type = (SELECT $4::text))
     AND ($16::text IS DISTINCT FROM 'external_system'
          OR (d.external_system = (SELECT $5::text) AND d.external_system IS NOT NULL))
     AND ($16::text IS DISTINCT FROM 'endpoint_id' OR d.endpoint_id = (SELECT $6::uuid))
     AND ($16::text IS DISTINCT FROM 'reason' OR d.reason = (SELECT $7::text))
     AND ($16::text IS DISTINCT FROM 'category' OR d.category = (SELECT $8::text))
     AND ($16::text IS DISTINCT FROM 'fingerprint' OR d.fingerprint = (SELECT $9::text))
     AND ($16::text IS DISTINCT FROM 'event_id' OR d.event_id = (SELECT $14::uuid))
     AND ($16::text IS DISTINCT FROM 'correlation_id' OR d.correlation_id = (SELECT $15::text))
     AND ($10::timestamptz IS NULL OR d.created_at >= $10)
     AND ($11::timestamptz IS NULL OR d.created_at < $11)
     AND ($3::text IS NULL OR d.kind = $3)
     AND ($4::text IS NULL OR d.event_type = $4)
     AND ($5::text IS NULL OR d.external_system = $5)
     AND ($6::uuid IS NULL OR d.endpoint_id = $6)
     AND ($7::text IS NULL OR d.reason = $7)
     AND ($8::text IS NULL OR d.category = $8)
     AND ($9::text IS NULL OR d.fingerprint = $9)
     AND ($14::uuid IS NULL OR d.event_id = $14)
     AND ($15::text IS NULL OR d.correlation_id = $15)
     AND ($12::text IS NULL OR d.error_message ILIKE $12 OR d.event_type ILIKE $12 OR d.correlation_id ILIKE $12
          OR d.event_id::text ILIKE $12)
     AND ($13::text IS NULL OR d.event_type LIKE $13)
     AND ($18::timestamptz IS NULL OR coalesce(d.first_failed_at, d.created_at) >= $18)
     AND ($19::timestamptz IS NULL OR coalesce(d.first_failed_at, d.created_at) < $19)
   LIMIT $17),
shown AS MATERIALIZED (
  SELECT f.* FROM found f
   WHERE $22::text IS NULL
      OR CASE WHEN $21::boolean THEN (f.key, f.task_id) < ($22 COLLATE "C", $23::uuid) ELSE (f.key, f.task_id) > ($22 COLLATE "C", $23) END
   ORDER BY CASE WHEN $21 THEN f.key END DESC, CASE WHEN $21 THEN f.task_id END DESC, f.key, f.task_id LIMIT $24)
SELECT e.*, s.key AS sort_key, d.state AS letter_state, d.category AS letter_category, d.fingerprint, d.error_message AS letter_error,
       d.failed_at, d.created_at AS letter_created_at, d.updated_at AS letter_updated_at, d.reason AS letter_reason,
       d.replays, d.replayed_at, d.replayed_by, d.replayed_because, d.replay_outcome, d.closed_at, d.closed_by,
       d.closed_because, d.generation AS letter_generation, t.run_id, t.step
  FROM shown s
  JOIN redrive.dead_letter d ON d.ctid = s.place
  JOIN redrive.task_entry e ON e.org_id = d.org_id AND e.id = d.task_id
  JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
 ORDER BY CASE WHEN $21 THEN s.key END DESC, CASE WHEN $21 THEN s.task_id END DESC, s.key, s.task_id;
