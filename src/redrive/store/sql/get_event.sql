-- get_event: one event with its payload. $1 org, $2 id.
SELECT e.*, b.body, b.content_type
  FROM redrive.event e LEFT JOIN redrive.payload b ON b.org_id = e.org_id AND b.event_id = e.id
 WHERE e.org_id = $1 AND e.id = $2;
