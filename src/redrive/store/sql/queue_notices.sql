-- queue_notices: tasks of notices wait in queues of their own, which API processes serve too: "no worker is at work" reaches people where none is.
-- In the transaction that has just accepted their events, so that nobody has seen them in the usual queue. Those that wait in a lane are told
-- when they are its head; a lane's own wake-up was told by accept(). $1 orgs, $2 events, $3 kinds that have such a queue, $4 what its name begins with.
WITH moved AS (
  UPDATE redrive.task t SET queue = $4::text || t.kind
    FROM unnest($1::uuid[], $2::uuid[]) AS e(org_id, event_id)
   WHERE t.org_id = e.org_id AND t.event_id = e.event_id AND t.kind = ANY ($3::text[]) AND t.queue = t.kind
  RETURNING t.queue, t.org_id, t.endpoint_id, t.lane)
SELECT redrive.tell(array_agg(m.queue), array_agg(m.org_id), array_agg(m.endpoint_id))
  FROM (SELECT DISTINCT queue, org_id, endpoint_id FROM moved WHERE lane IS NULL) m;
