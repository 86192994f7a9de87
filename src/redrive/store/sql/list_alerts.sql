-- list_alerts: newest first. $1 org, $2 state, $3 rule, $4 opened since, $5 and $6 before, $7 limit.
SELECT a.id, a.rule, a.severity, a.subject_kind, a.subject_id, a.subject_name, a.opened_at, a.over_at, a.text, a.over_text, a.saw
  FROM redrive.alert a
 WHERE a.org_id = $1
   AND ($2::text IS NULL OR (a.over_at IS NULL) = ($2 = 'firing'))
   AND ($3::text IS NULL OR a.rule = $3)
   AND ($4::timestamptz IS NULL OR a.opened_at >= $4)
   AND ($5::timestamptz IS NULL OR (a.opened_at, a.id) < ($5, $6::uuid))
 ORDER BY a.opened_at DESC, a.id DESC LIMIT $7;
