-- get_event: one event with its payload. $1 org, $2 id.
SELECT e.*, b.body, b.headers
  FROM redrive.event_entry e JOIN redrive.event b ON b.org_id = e.org_id AND b.id = e.id
 WHERE e.org_id = $1 AND e.id = $2;
