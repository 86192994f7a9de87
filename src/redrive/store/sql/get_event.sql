-- get_event: one event with its payload. $1 org, $2 id.
-- A payload that is larger than what may be handed in came from a broker, and is told by its size alone.
SELECT e.*, CASE WHEN octet_length(b.body) <= 1048576 THEN b.body END AS body, octet_length(b.body) AS body_bytes, b.headers
  FROM redrive.event_entry e JOIN redrive.event b ON b.org_id = e.org_id AND b.id = e.id
 WHERE e.org_id = $1 AND e.id = $2;
