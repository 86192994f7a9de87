-- list_operations: newest first. $1 org, $2 state, $3 and $4 before, $5 limit.
SELECT * FROM redrive.operation o
 WHERE o.org_id = $1 AND ($2::text IS NULL OR o.state = $2)
   AND ($3::timestamptz IS NULL OR (o.created_at, o.id) < ($3, $4::uuid))
 ORDER BY o.created_at DESC, o.id DESC LIMIT $5;
