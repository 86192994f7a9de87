-- terms_of_event: the policy that an event's one task was accepted under. $1 org, $2 event.
SELECT p.spec
  FROM redrive.task t
  JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
 WHERE t.org_id = $1 AND t.event_id = $2;
