-- collect_retry_queue: write the next items of an operation down. $1 org, $2 operation, $3 how many rows to look at, $4 most
-- items, $5 now, then the filters: $6 status, $7 event type as a LIKE pattern, $8 external system, $9 endpoint,
-- $10 category, $11 text.
-- Bounded by the rows looked at, not by those found: a rare filter makes many short transactions, not a long one. Whatever came
-- into the queue after the click is left out; what moves in it meanwhile may be met twice, and is taken once. (Asked by a
-- subquery of its own: as a join, planned while there are no items yet, it would read all of them for each row.)
WITH op AS MATERIALIZED (
  SELECT * FROM redrive.operation WHERE org_id = $1 AND id = $2),
seen AS MATERIALIZED (
  SELECT t.id, t.due_at, t.state, t.event_type, t.external_system, t.endpoint_id, t.first_failed_at, t.begun_at
    FROM redrive.task t
   WHERE t.org_id = $1 AND t.open AND t.attempts > 0
     AND (t.due_at, t.id) > (coalesce((SELECT collected_at FROM op), '-infinity'),
                             coalesce((SELECT collected_id FROM op), '00000000-0000-0000-0000-000000000000'::uuid))
   ORDER BY t.due_at, t.id LIMIT $3),
chosen AS (
  SELECT s.id, op.total + row_number() OVER (ORDER BY s.due_at, s.id) AS n
    FROM seen s CROSS JOIN op
   WHERE ($6::text IS NULL OR (s.state = 'leased') = ($6 = 'in_progress'))
     AND ($7::text IS NULL OR s.event_type LIKE $7)
     AND ($8::text IS NULL OR s.external_system = $8)
     AND ($9::uuid IS NULL OR s.endpoint_id = $9)
     AND (num_nonnulls($10::text, $11::text) = 0 OR ($10::text IS NULL AND s.event_type ILIKE $11) OR (
       SELECT ($10::text IS NULL OR f.category = $10)
              AND ($11::text IS NULL OR f.error_message ILIKE $11 OR s.event_type ILIKE $11)
         FROM redrive.attempt f
        WHERE f.org_id = $1 AND f.task_id = s.id AND f.result IN ('failed', 'lost')
        ORDER BY f.fence DESC LIMIT 1))
     AND coalesce(s.first_failed_at <= op.created_at, true) AND s.begun_at <= op.created_at
     AND (SELECT true FROM redrive.operation_item i
           WHERE i.org_id = $1 AND i.operation_id = $2 AND i.task_id = s.id) IS NULL),
added AS (
  INSERT INTO redrive.operation_item (org_id, operation_id, n, task_id)
  SELECT $1, $2, c.n, c.id FROM chosen c WHERE c.n <= $4
  RETURNING 1),
counted AS (
  SELECT (SELECT count(*) FROM added)::int AS added, (SELECT count(*) FROM seen) < $3 AS is_last,
         EXISTS (SELECT FROM chosen c WHERE c.n > $4) AS is_full)
UPDATE redrive.operation o SET
       total = o.total + counted.added,
       collected_at = coalesce(last.due_at, o.collected_at), collected_id = coalesce(last.id, o.collected_id),
       collected = counted.is_last OR counted.is_full,
       state = CASE WHEN counted.is_last OR counted.is_full THEN 'running' ELSE 'preparing' END,
       note = CASE WHEN counted.is_full THEN format('Only the first %s were taken.', $4) END,
       step_at = coalesce($5::timestamptz, clock_timestamp()), updated_at = coalesce($5::timestamptz, clock_timestamp())
  FROM counted LEFT JOIN (SELECT id, due_at FROM seen ORDER BY due_at DESC, id DESC LIMIT 1) last ON true
 WHERE o.org_id = $1 AND o.id = $2
RETURNING o.collected;
