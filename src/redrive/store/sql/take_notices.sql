-- take_notices: the oldest that nobody has told; what another herald has in hand is left to it. $1 limit.
SELECT n.org_id, o.name AS org, n.id, n.at, n.kind, n.severity, n.subject_kind, n.subject_id, n.text, n.facts
  FROM redrive.notice n JOIN redrive.org o ON o.org_id = n.org_id
 WHERE n.told_at IS NULL ORDER BY n.at, n.id LIMIT $1 FOR UPDATE OF n SKIP LOCKED;
