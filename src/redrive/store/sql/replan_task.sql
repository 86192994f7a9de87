-- replan_task: a waiting task goes on under another policy, with the delay that this has before its next retry. $1 org, $2 task, $3 now,
-- $4 policy, $5 delay in seconds (NULL: it waits for a person).
WITH moved AS (
  UPDATE redrive.task t SET policy_id = $4, expedited = false, updated_at = c.now,
         due_at = coalesce(c.now + make_interval(secs => $5::float8), 'infinity')
    FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) c
   WHERE t.org_id = $1 AND t.id = $2 AND t.state = 'waiting'
  RETURNING t.due_at)
SELECT nullif(due_at, 'infinity') AS due_at, pg_notify('redrive_due', '') FROM moved;
