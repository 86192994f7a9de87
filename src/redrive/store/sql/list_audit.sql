-- list_audit: newest first. $1 org, $2 actor, $3 action, $4 kind of subject, $5 subject, $6 since, $7 until,
-- $8 and $9 before, $10 limit.
SELECT a.id, a.at, a.actor, a.action, a.subject_kind, a.subject_id, a.because, a.source, a.correlation_id, a.before, a.after
  FROM redrive.audit a
 WHERE a.org_id = $1
   AND ($2::text IS NULL OR a.actor = $2)
   AND ($3::text IS NULL OR a.action = $3)
   AND ($4::text IS NULL OR a.subject_kind = $4)
   AND ($5::uuid IS NULL OR a.subject_id = $5)
   AND ($6::timestamptz IS NULL OR a.at >= $6)
   AND ($7::timestamptz IS NULL OR a.at < $7)
   AND ($8::timestamptz IS NULL OR (a.at, a.id) < ($8, $9::uuid))
 ORDER BY a.at DESC, a.id DESC LIMIT $10;
