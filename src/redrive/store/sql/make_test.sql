-- make_test: an event's one task is a test, under terms of its own. $1 org, $2 event, $3 policy.
UPDATE redrive.task SET is_test = true, policy_id = $3 WHERE org_id = $1 AND event_id = $2;
