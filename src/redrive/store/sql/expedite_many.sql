-- expedite_many: as expedite, for tasks that are locked. $1 now, $2 org, $3 tasks, $4 whether each goes before all others.
WITH chosen AS MATERIALIZED (SELECT $2::uuid AS org_id, g.* FROM unnest($3::uuid[], $4::boolean[]) AS g(id, goes_first)),
due AS (
  UPDATE redrive.task t SET due_at = coalesce($1::timestamptz, clock_timestamp()), expedited = c.goes_first,
         updated_at = coalesce($1::timestamptz, clock_timestamp())
    FROM chosen c
   WHERE t.org_id = c.org_id AND t.id = c.id AND t.worker_id IS NULL RETURNING 1)
SELECT count(*) AS n, pg_notify('redrive_due', '') IS NULL AS told FROM due;
