-- resume_run: a person replays it. $1 org, $2 run, $3 now (NULL: the database's clock), $4 the step after which it stops (NULL: none),
-- $5 the overrides in force (JSON).
UPDATE redrive.run SET status = 'RUNNING', replays = replays + CASE WHEN status = 'RUNNING' THEN 0 ELSE 1 END, stop_after = $4, overrides = $5,
       started_at = coalesce(started_at, $3::timestamptz, clock_timestamp()), finished_at = NULL, cancelled_at = NULL, cancelled_by = NULL, cancelled_because = NULL,
       updated_at = coalesce($3::timestamptz, clock_timestamp())
 WHERE org_id = $1 AND id = $2;
