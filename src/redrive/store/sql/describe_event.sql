-- describe_event: what the audit keeps of an event that is removed: never its payload, but what that was can be proven.
-- $1 org, $2 id.
SELECT s.tasks, s.event_type, s.status, s.submitted_by, s.correlation_id, encode(sha256(e.body), 'hex') AS sha256
  FROM redrive.event_entry s JOIN redrive.event e ON e.org_id = s.org_id AND e.id = s.id
 WHERE s.org_id = $1 AND s.id = $2;
