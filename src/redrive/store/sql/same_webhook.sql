-- same_webhook: whether a stored event has this body, and where it stands. A sender's repetition has other headers (its time, its
-- signature), and is the same webhook all the same. $1 org, $2 event, $3 body.
SELECT e.body = $3 AS is_same, s.status
  FROM redrive.event e JOIN redrive.event_entry s ON s.org_id = e.org_id AND s.id = e.id
 WHERE e.org_id = $1 AND e.id = $2;
