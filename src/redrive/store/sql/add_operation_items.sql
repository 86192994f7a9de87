-- add_operation_items: the ids that a person gave, in their order. $1 org, $2 operation, $3 tasks.
INSERT INTO redrive.operation_item (org_id, operation_id, n, task_id, lane_order)
SELECT $1, $2, g.n::int, g.id,
       redrive.lane_order($1, g.id, (SELECT EXISTS (SELECT FROM redrive.lane l WHERE l.org_id = $1 AND l.halted_at IS NOT NULL)))
  FROM unnest($3::uuid[]) WITH ORDINALITY AS g(id, n);
