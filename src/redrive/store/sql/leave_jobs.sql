-- leave_jobs: a process ends that ran these. $1 now, $2 names. Where another runs them too, its next report says so.
WITH ours AS MATERIALIZED (SELECT j.name FROM redrive.job j WHERE j.name = ANY($2::text[]) ORDER BY j.name FOR UPDATE)
UPDATE redrive.job j SET left_at = coalesce($1::timestamptz, clock_timestamp()) FROM ours WHERE j.name = ours.name;
