-- list_inbox_failed: events of which a task is dead and none is open, found by their dead tasks; else as list_inbox.
-- A payload that is larger than what may be handed in came from a broker, and is told by its size alone.
-- $1 org, $2 event type, $3 to $5 after (timestamp, arrival, id), $6 limit, $7 bytes.
WITH oldest AS MATERIALIZED (
  SELECT DISTINCT ON (coalesce(t.occurred_at, t.received_at), t.received_at, t.event_id) t.event_id
    FROM redrive.task t
   WHERE t.org_id = $1 AND t.reason IS NOT NULL
     AND (SELECT true FROM redrive.task o  -- no join, which a planner with old numbers would make of all with all
           WHERE o.org_id = t.org_id AND o.received_at = t.received_at AND o.event_id = t.event_id AND o.open LIMIT 1) IS NULL
     AND ($2::text IS NULL OR t.event_type = $2)
     AND ($3::timestamptz IS NULL
          OR (coalesce(t.occurred_at, t.received_at), t.received_at, t.event_id) > ($3, $4::timestamptz, $5::uuid))
   ORDER BY coalesce(t.occurred_at, t.received_at), t.received_at, t.event_id LIMIT $6),
found AS MATERIALIZED (
  SELECT e.id, e.event_type, e.occurred_at, e.received_at, octet_length(e.body) AS bytes
    FROM oldest o JOIN redrive.event e ON e.org_id = $1 AND e.id = o.event_id),
measured AS (
  SELECT f.*, count(*) OVER () AS found, row_number() OVER oldest AS place,
         sum(f.bytes) FILTER (WHERE f.bytes <= 1048576) OVER oldest AS so_far
    FROM found f WINDOW oldest AS (ORDER BY f.occurred_at, f.received_at, f.id))
SELECT m.*, CASE WHEN m.bytes <= 1048576 THEN e.body END AS body FROM measured m JOIN redrive.event e ON e.org_id = $1 AND e.id = m.id
 WHERE m.place = 1 OR coalesce(m.so_far, 0) <= $7
 ORDER BY m.occurred_at, m.received_at, m.id;
