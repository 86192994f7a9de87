-- list_logs: tasks as integration logs, newest event first. $1 org, $2 status, $3 event type as a LIKE pattern, $4 external system,
-- $5 endpoint, $6 event, $7 since, $8 until, $9, $10 and $11 after (received, event, task), $12 limit, $13 how many events to look
-- at, $14 column to sort by (NULL: by time), $15 whether it descends, $16 and $17 after in that order (key, task).
--
-- Events are read by their age; of each, its tasks. As list_dead_letters: filters are asked of at most $13 events, and every row
-- tells where that ended; where nothing matches there is one row without an id. By another column only what was looked at is
-- sorted: asked where that is all there is.
WITH looked AS MATERIALIZED (
  SELECT e.id, e.received_at
    FROM redrive.event e
   WHERE e.org_id = $1 AND ($6::uuid IS NULL OR e.id = $6)
     AND ($7::timestamptz IS NULL OR e.received_at >= $7) AND ($8::timestamptz IS NULL OR e.received_at < $8)
     AND ($9::timestamptz IS NULL OR (e.received_at, e.id) <= ($9, $10::uuid))
   ORDER BY e.received_at DESC, e.id DESC LIMIT $13),
matched AS MATERIALIZED (
  SELECT l.received_at, l.id AS event_id, t.id,
         left(CASE $14::text
                WHEN 'event_type' THEN t.event_type
                WHEN 'external_system' THEN coalesce(t.external_system, '')
                WHEN 'status' THEN CASE WHEN t.state = 'succeeded' THEN 'success' WHEN t.attempts > 0 OR t.state = 'dead' THEN 'error' ELSE 'pending' END
                WHEN 'attempt_count' THEN lpad(t.attempts::text, 10, '0')
                ELSE to_char(CASE $14 WHEN 'updated_at' THEN t.updated_at ELSE l.received_at END AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')
              END, 100) COLLATE "C" AS key
    FROM looked l JOIN redrive.task t ON t.org_id = $1 AND t.event_id = l.id
   WHERE ($2::text IS NULL OR $2 = CASE WHEN t.state = 'succeeded' THEN 'success' WHEN t.attempts > 0 OR t.state = 'dead' THEN 'error' ELSE 'pending' END)
     AND ($3::text IS NULL OR t.event_type LIKE $3)
     AND ($4::text IS NULL OR t.external_system = $4)
     AND ($5::uuid IS NULL OR t.endpoint_id = $5)
     AND ($9::timestamptz IS NULL OR (l.received_at, l.id, t.id) < ($9, $10, $11::uuid))),
shown AS MATERIALIZED (
  SELECT m.* FROM matched m
   WHERE $16::text IS NULL
      OR CASE WHEN $15::boolean THEN (m.key, m.id) < ($16 COLLATE "C", $17::uuid) ELSE (m.key, m.id) > ($16 COLLATE "C", $17) END
   ORDER BY CASE WHEN $14 IS NULL THEN m.received_at END DESC, CASE WHEN $14 IS NULL THEN m.event_id END DESC,
            CASE WHEN $14 IS NULL THEN m.id END DESC, CASE WHEN $15 THEN m.key END DESC, CASE WHEN $15 THEN m.id END DESC, m.key, m.id
   LIMIT $12),
ended AS MATERIALIZED (
  SELECT l.received_at AS looked_at, l.id AS looked_id, (SELECT count(*) FROM looked) AS looked, (SELECT count(*) FROM matched) AS matched
    FROM looked l ORDER BY l.received_at, l.id LIMIT 1)
SELECT r.*, ended.looked_at, ended.looked_id, ended.looked, ended.matched
  FROM ended LEFT JOIN (
    SELECT e.*, s.key AS sort_key, s.received_at AS sort_at
      FROM shown s JOIN redrive.task_entry e ON e.org_id = $1 AND e.id = s.id) r ON true
 ORDER BY CASE WHEN $14 IS NULL THEN r.sort_at END DESC, CASE WHEN $14 IS NULL THEN r.event_id END DESC,
          CASE WHEN $14 IS NULL THEN r.id END DESC, CASE WHEN $15 THEN r.sort_key END DESC, CASE WHEN $15 THEN r.id END DESC, r.sort_key, r.id;
