-- check_payload: every event has its payload, every payload its event.
SELECT e.org_id, e.id, 'the event has no payload' AS detail
  FROM redrive.event e
 WHERE NOT EXISTS (SELECT FROM redrive.payload b WHERE b.org_id = e.org_id AND b.event_id = e.id)
UNION ALL
SELECT b.org_id, b.event_id, 'the payload has no event'
  FROM redrive.payload b
 WHERE NOT EXISTS (SELECT FROM redrive.event e WHERE e.org_id = b.org_id AND e.id = b.event_id)
 LIMIT 11;
