-- create_operation: $1 org, $2 id, $3 subject, $4 action, $5 filter, $6 at once, $7 canary, $8 rate, $9 who, $10 why,
-- $11 correlation id, $12 from where, $13 now, $14 items. Given by ids it has them at once; by a filter they are collected.
INSERT INTO redrive.operation (org_id, id, subject, action, state, filter, at_once, canary, rate_per_s, actor, because,
                               correlation_id, source, total, collected, step_at, created_at, updated_at)
SELECT $1, $2, $3, $4, CASE WHEN $5::jsonb IS NULL THEN 'running' ELSE 'preparing' END, $5::jsonb, $6, $7::jsonb, $8, $9, $10,
       $11, $12, $14::int, $5::jsonb IS NULL, clock.now, clock.now, clock.now
  FROM (SELECT coalesce($13::timestamptz, clock_timestamp()) AS now) clock
RETURNING *;
