-- list_operation_items: in their order. $1 org, $2 operation, $3 state, $4 after, $5 limit.
SELECT i.n, i.task_id, i.state, i.note FROM redrive.operation_item i
 WHERE i.org_id = $1 AND i.operation_id = $2 AND ($3::text IS NULL OR i.state = $3) AND i.n > coalesce($4::int, 0)
 ORDER BY i.n LIMIT $5;
