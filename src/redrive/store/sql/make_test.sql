-- make_test: an event's one task is a test, under terms of its own, and in no order: it does not wait for a lane.
-- $1 org, $2 event, $3 policy.
WITH made AS (
  UPDATE redrive.task SET is_test = true, policy_id = $3, lane = NULL, place = NULL, behind = NULL
   WHERE org_id = $1 AND event_id = $2 RETURNING queue, org_id, endpoint_id)
SELECT redrive.tell(ARRAY[queue], ARRAY[org_id], ARRAY[endpoint_id]) FROM made;
