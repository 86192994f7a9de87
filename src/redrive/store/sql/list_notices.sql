-- list_notices: newest first. $1 org, $2 kind, $3 and $4 before, $5 limit.
SELECT n.id, n.at, n.kind, n.severity, n.subject_kind, n.subject_id, n.text, n.facts, n.told_at
  FROM redrive.notice n
 WHERE n.org_id = $1
   AND ($2::text IS NULL OR n.kind = $2)
   AND ($3::timestamptz IS NULL OR (n.at, n.id) < ($3, $4::uuid))
 ORDER BY n.at DESC, n.id DESC LIMIT $5;
