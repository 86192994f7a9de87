-- late_result: for settlements that closed nothing, or not all. Where the lease was lost, keep what the worker reports
-- beside the record of the loss; it has no effect. The rows that come back were settled by the same worker, now or before:
-- only the holder of a fence ends it otherwise than lost.
WITH report AS MATERIALIZED (
  SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::int[], $7::text[])
    AS r(org_id, task_id, fence, result, status_code, url)),
late AS (
  UPDATE redrive.attempt a SET late_at = coalesce($1::timestamptz, clock_timestamp()), late_result = r.result,
         status_code = coalesce(a.status_code, r.status_code), url = coalesce(a.url, r.url)
    FROM report r
   WHERE a.org_id = r.org_id AND a.task_id = r.task_id AND a.fence = r.fence AND a.result = 'lost' AND a.late_at IS NULL)
SELECT a.task_id, a.fence FROM report r
  JOIN redrive.attempt a ON a.org_id = r.org_id AND a.task_id = r.task_id AND a.fence = r.fence
 WHERE a.result <> 'lost';
