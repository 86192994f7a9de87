-- list_dead_letters: newest first. $1 org, $2 state, $3 to $9 filters, $10 and $11 died since and until, $12 text,
-- $13 pattern of event types, $14 event, $15 correlation id, $16 and $17 before, $18 limit, $19 the filter that chooses the index, $20 how many letters to look
-- at, $21 and $22 first failed since and until.
--
-- One index is read in its order: that of the one filter named in $19, or by age. The other filters are asked of what it
-- gives, at most $20 letters, so that no page costs more than that. Whoever finds too few goes on behind the last one
-- looked at, which every row tells; where nothing matches there is one row without an id. The value hides in a sub-select:
-- the planner must not reason about how frequent it is (see the migration that sets n_distinct).
WITH looked AS MATERIALIZED (
  SELECT d.ctid AS place, d.created_at, d.task_id,
         ($3::text IS NULL OR d.kind = $3)
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
           AND ($21::timestamptz IS NULL OR coalesce(d.first_failed_at, d.created_at) >= $21)
           AND ($22::timestamptz IS NULL OR coalesce(d.first_failed_at, d.created_at) < $22) AS matches
    FROM redrive.dead_letter d
   WHERE d.org_id = $1 AND d.state = (SELECT $2::text)
     AND ($19::text IS DISTINCT FROM 'kind' OR d.kind = (SELECT $3::text))
     AND ($19::text IS DISTINCT FROM 'event_type' OR d.event_type = (SELECT $4::text))
     AND ($19::text IS DISTINCT FROM 'external_system'
          OR (d.external_system = (SELECT $5::text) AND d.external_system IS NOT NULL))
     AND ($19::text IS DISTINCT FROM 'endpoint_id' OR d.endpoint_id = (SELECT $6::uuid))
     AND ($19::text IS DISTINCT FROM 'reason' OR d.reason = (SELECT $7::text))
     AND ($19::text IS DISTINCT FROM 'category' OR d.category = (SELECT $8::text))
     AND ($19::text IS DISTINCT FROM 'fingerprint' OR d.fingerprint = (SELECT $9::text))
     AND ($19::text IS DISTINCT FROM 'event_id' OR d.event_id = (SELECT $14::uuid))
     AND ($19::text IS DISTINCT FROM 'correlation_id' OR d.correlation_id = (SELECT $15::text))
     AND ($10::timestamptz IS NULL OR d.created_at >= $10)
     AND ($11::timestamptz IS NULL OR d.created_at < $11)
     AND ($16::timestamptz IS NULL OR (d.created_at, d.task_id) < ($16, $17::uuid))
   ORDER BY d.created_at DESC, d.task_id DESC LIMIT $20),
matched AS MATERIALIZED (
  SELECT l.place FROM looked l WHERE l.matches ORDER BY l.created_at DESC, l.task_id DESC LIMIT $18),
ended AS MATERIALIZED (
  SELECT l.created_at AS looked_at, l.task_id AS looked_id, (SELECT count(*) FROM looked) AS looked
    FROM looked l ORDER BY l.created_at, l.task_id LIMIT 1)
SELECT r.*, ended.looked_at, ended.looked_id, ended.looked
  FROM ended LEFT JOIN (
    SELECT e.*, d.state AS letter_state, d.category AS letter_category, d.fingerprint, d.error_message AS letter_error,
           d.failed_at, d.created_at AS letter_created_at, d.updated_at AS letter_updated_at, d.reason AS letter_reason,
           d.replays, d.replayed_at, d.replayed_by, d.replayed_because, d.replay_outcome, d.closed_at, d.closed_by,
           d.closed_because, d.generation AS letter_generation, t.run_id, t.step
      FROM matched m
      JOIN redrive.dead_letter d ON d.ctid = m.place  -- where it was just found: no look-up
      JOIN redrive.task_entry e ON e.org_id = d.org_id AND e.id = d.task_id
      JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id) r ON true
 ORDER BY r.letter_created_at DESC, r.id DESC;
