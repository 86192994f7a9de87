-- list_inbox: events that nobody delivers, oldest timestamp first (ties by arrival), with their payloads as far as they fit: a row
-- whose payload would make the page too large is left out, and so are those behind it. `found`: how many there would be without
-- that limit. $1 org, $2 event type, $3 to $5 after (timestamp, arrival, id), $6 limit, $7 bytes.
WITH found AS MATERIALIZED (
  SELECT e.id, e.event_type, e.occurred_at, e.received_at, octet_length(e.body) AS bytes
    FROM redrive.event e
   WHERE e.org_id = $1 AND e.tasks = 0 AND e.acked_at IS NULL
     AND ($2::text IS NULL OR e.event_type = $2)
     AND ($3::timestamptz IS NULL OR (e.occurred_at, e.received_at, e.id) > ($3, $4::timestamptz, $5::uuid))
   ORDER BY e.occurred_at, e.received_at, e.id LIMIT $6),
measured AS (
  SELECT f.*, count(*) OVER () AS found, row_number() OVER oldest AS place, sum(f.bytes) OVER oldest AS so_far
    FROM found f WINDOW oldest AS (ORDER BY f.occurred_at, f.received_at, f.id))
SELECT m.*, e.body FROM measured m JOIN redrive.event e ON e.org_id = $1 AND e.id = m.id
 WHERE m.place = 1 OR m.so_far <= $7
 ORDER BY m.occurred_at, m.received_at, m.id;
