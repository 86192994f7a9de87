-- next_operation: the active operation that has waited longest, over all orgs, and that nobody is at. $1 now.
SELECT o.*, coalesce($1::timestamptz, clock_timestamp()) AS now FROM redrive.operation o
 WHERE o.active ORDER BY o.step_at LIMIT 1 FOR UPDATE SKIP LOCKED;
