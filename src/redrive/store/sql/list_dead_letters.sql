-- list_dead_letters: newest first. $1 org, $2 state, then filters, $13 and $14 before, $15 limit.
SELECT e.*, d.state AS letter_state, d.category AS letter_category, d.fingerprint, d.error_message AS letter_error,
       d.failed_at, d.created_at AS letter_created_at, d.updated_at AS letter_updated_at, d.reason AS letter_reason,
       d.replays, d.replayed_at, d.replayed_by, d.replayed_because, d.replay_outcome, d.closed_at, d.closed_by,
       d.closed_because, d.generation AS letter_generation
  FROM (
    SELECT * FROM redrive.dead_letter d
     WHERE d.org_id = $1 AND d.state = $2
       AND ($3::text IS NULL OR d.kind = $3)
       AND ($4::text IS NULL OR d.event_type = $4)
       AND ($5::text IS NULL OR d.external_system = $5)
       AND ($6::uuid IS NULL OR d.endpoint_id = $6)
       AND ($7::text IS NULL OR d.reason = $7)
       AND ($8::text IS NULL OR d.category = $8)
       AND ($9::text IS NULL OR d.fingerprint = $9)
       AND ($10::timestamptz IS NULL OR d.created_at >= $10)
       AND ($11::timestamptz IS NULL OR d.created_at < $11)
       AND ($12::text IS NULL OR d.error_message ILIKE $12 OR d.event_type ILIKE $12)
       AND ($13::timestamptz IS NULL OR (d.created_at, d.task_id) < ($13, $14::uuid))
     ORDER BY d.created_at DESC, d.task_id DESC LIMIT $15) d
  JOIN redrive.task_entry e ON e.org_id = d.org_id AND e.id = d.task_id
 ORDER BY d.created_at DESC, d.task_id DESC;
