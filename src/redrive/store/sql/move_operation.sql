-- move_operation: where an operation stands after a step. $1 org, $2 id, $3 now, $4 whether anything changed, $5 seconds until
-- the next step, $6 state, $7 dispatched, $8 succeeded, $9 failed, $10 stage, $11 and $12 its sums, $13 paid until, $14 note,
-- $15 whether it has ended.
UPDATE redrive.operation o SET state = $6, dispatched = $7, succeeded = $8, failed = $9, stage = $10, stage_done = $11,
       stage_failed = $12, paid_until = $13, note = $14, step_at = $3::timestamptz + make_interval(secs => $5),
       updated_at = CASE WHEN $4 THEN $3 ELSE o.updated_at END, finished_at = CASE WHEN $15 THEN $3::timestamptz END
 WHERE o.org_id = $1 AND o.id = $2;
