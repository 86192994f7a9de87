-- make_test: an event's one task is a test, under terms of its own, and in no order: it does not wait for a lane.
-- What tests do counts nowhere: its event, which did when it was stored, is taken off again.
-- $1 org, $2 event, $3 policy.
WITH made AS (
  UPDATE redrive.task SET is_test = true, policy_id = $3, lane = NULL, place = NULL, behind = NULL
   WHERE org_id = $1 AND event_id = $2 RETURNING queue, org_id, endpoint_id),
not_in_pulse AS (
  INSERT INTO redrive.pulse AS p (org_id, minute, shard, created, opened)
  SELECT e.org_id, date_bin('1 minute', e.received_at, 'epoch'), redrive.own_shard(), -1, -1
    FROM redrive.event e WHERE e.org_id = $1 AND e.id = $2
  ON CONFLICT (org_id, minute, shard) DO UPDATE SET created = p.created - 1, opened = p.opened - 1),
taken_off AS (
  INSERT INTO redrive.tally (org_id, minute, event_type, external_system, created)
  SELECT e.org_id, date_bin('1 minute', e.received_at, 'epoch'), e.event_type, e.external_system, -1
    FROM redrive.event e WHERE e.org_id = $1 AND e.id = $2)
SELECT redrive.tell(ARRAY[queue], ARRAY[org_id], ARRAY[endpoint_id]) FROM made;
