-- create_operation: $1 org, $2 subject, $3 action, $4 filter, $5 at once, $6 canary, $7 rate, $8 who, $9 why,
-- $10 correlation id, $11 from where, $12 now, $13 items, $14 patch,
-- $15 where in its lane. Given by ids it has them at once; by a filter they are collected.
INSERT INTO redrive.operation (org_id, id, subject, action, state, filter, at_once, canary, rate_per_s, actor, because,
                               correlation_id, source, total, collected, step_at, created_at, updated_at, patch, lane_order)
SELECT $1, redrive.uuid7(), $2, $3, CASE WHEN $4::jsonb IS NULL THEN 'running' ELSE 'preparing' END, $4::jsonb, $5, $6::jsonb,
       $7, $8, $9, $10, $11, $13::int, $4::jsonb IS NULL, clock.now, clock.now, clock.now, $14, $15
  FROM (SELECT coalesce($12::timestamptz, clock_timestamp()) AS now OFFSET 0) clock
RETURNING *;
