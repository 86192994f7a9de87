-- expedite_many: as expedite, for tasks that are locked. $1 now, $2 org, $3 tasks.
WITH due AS (
  UPDATE redrive.task t SET due_at = coalesce($1::timestamptz, clock_timestamp()), expedited = true,
         updated_at = coalesce($1::timestamptz, clock_timestamp())
    FROM unnest($3::uuid[]) AS g(id)
   WHERE t.org_id = $2 AND t.id = g.id AND t.state = 'waiting' RETURNING 1)
SELECT count(*) AS n, pg_notify('redrive_due', '') IS NULL AS told FROM due;
