-- list_operations: newest first: ids are made by the database, in the order of time. $1 org, $2 state, $3 before, $4 limit.
SELECT * FROM redrive.operation o
 WHERE o.org_id = $1 AND ($2::text IS NULL OR o.state = $2) AND ($3::uuid IS NULL OR o.id < $3)
 ORDER BY o.id DESC LIMIT $4;
