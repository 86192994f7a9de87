-- collect_dead_letters: as collect_retry_queue, oldest first. $1 org, $2 operation, $3 how many rows to look at, $4 most items,
-- $5 now, then the filters: $6 state, $7 kind, $8 event type, $9 external system, $10 endpoint, $11 reason, $12 category,
-- $13 fingerprint, $14 and $15 died since and until, $16 text, $17 pattern of event types,
-- $18 event, $19 correlation id.
WITH op AS MATERIALIZED (
  SELECT * FROM redrive.operation WHERE org_id = $1 AND id = $2),
seen AS MATERIALIZED (
  SELECT d.task_id, d.created_at, d.kind, d.event_type, d.external_system, d.endpoint_id, d.reason, d.category, d.fingerprint,
         d.error_message, d.event_id, d.correlation_id,
         coalesce(d.first_failed_at, d.created_at) AS began_at
    FROM redrive.dead_letter d
   WHERE d.org_id = $1 AND d.state = $6 AND d.created_at <= (SELECT created_at FROM op)
     AND d.created_at >= coalesce($14::timestamptz, '-infinity') AND d.created_at < coalesce($15::timestamptz, 'infinity')
     AND (d.created_at, d.task_id) > (coalesce((SELECT collected_at FROM op), '-infinity'),
                                      coalesce((SELECT collected_id FROM op), '00000000-0000-0000-0000-000000000000'::uuid))
   ORDER BY d.created_at, d.task_id LIMIT $3),
chosen AS (
  SELECT s.task_id, op.total + row_number() OVER (ORDER BY s.created_at, s.task_id) AS n
    FROM seen s CROSS JOIN op
   WHERE ($7::text IS NULL OR s.kind = $7)
     AND ($8::text IS NULL OR s.event_type = $8)
     AND ($9::text IS NULL OR s.external_system = $9)
     AND ($10::uuid IS NULL OR s.endpoint_id = $10)
     AND ($11::text IS NULL OR s.reason = $11)
     AND ($12::text IS NULL OR s.category = $12)
     AND ($13::text IS NULL OR s.fingerprint = $13)
     AND ($16::text IS NULL OR s.error_message ILIKE $16 OR s.event_type ILIKE $16 OR s.correlation_id ILIKE $16
          OR s.event_id::text ILIKE $16)
     AND ($17::text IS NULL OR s.event_type LIKE $17)
     AND ($20::timestamptz IS NULL OR s.began_at >= $20) AND ($21::timestamptz IS NULL OR s.began_at < $21)
     AND ($18::uuid IS NULL OR s.event_id = $18)
     AND ($19::text IS NULL OR s.correlation_id = $19)
     AND (SELECT true FROM redrive.operation_item i
           WHERE i.org_id = $1 AND i.operation_id = $2 AND i.task_id = s.task_id) IS NULL),
added AS (
  INSERT INTO redrive.operation_item (org_id, operation_id, n, task_id, lane_order)
  SELECT $1, $2, c.n, c.task_id,
         redrive.lane_order($1, c.task_id, (SELECT EXISTS (SELECT FROM redrive.lane l WHERE l.org_id = $1 AND l.halted_at IS NOT NULL)))
    FROM chosen c WHERE c.n <= $4
  RETURNING 1),
counted AS (
  SELECT (SELECT count(*) FROM added)::int AS added, (SELECT count(*) FROM seen) < $3 AS is_last,
         EXISTS (SELECT FROM chosen c WHERE c.n > $4) AS is_full)
UPDATE redrive.operation o SET
       total = o.total + counted.added,
       collected_at = coalesce(last.created_at, o.collected_at), collected_id = coalesce(last.task_id, o.collected_id),
       collected = counted.is_last OR counted.is_full,
       state = CASE WHEN counted.is_last OR counted.is_full THEN 'running' ELSE 'preparing' END,
       note = CASE WHEN counted.is_full THEN format('Only the first %s were taken.', $4) END,
       step_at = coalesce($5::timestamptz, clock_timestamp()), updated_at = coalesce($5::timestamptz, clock_timestamp())
  FROM counted LEFT JOIN (SELECT task_id, created_at FROM seen ORDER BY created_at DESC, task_id DESC LIMIT 1) last ON true
 WHERE o.org_id = $1 AND o.id = $2
RETURNING o.collected;
