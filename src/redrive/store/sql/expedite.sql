-- expedite: a person wants the next try now. $1 org, $2 task, $3 now.
WITH due AS (
  UPDATE redrive.task SET due_at = coalesce($3::timestamptz, clock_timestamp()), expedited = true,
         updated_at = coalesce($3::timestamptz, clock_timestamp())
   WHERE org_id = $1 AND id = $2 AND state = 'waiting' RETURNING 1)
SELECT pg_notify('redrive_due', '') FROM due;
