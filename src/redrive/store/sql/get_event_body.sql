-- get_event_body: however large it is. $1 org, $2 id.
SELECT e.body FROM redrive.event e WHERE e.org_id = $1 AND e.id = $2;
