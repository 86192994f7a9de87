-- late_result: keep what a worker reports after it lost its lease, beside the record of the loss. It has no effect.
UPDATE redrive.attempt a SET late_at = coalesce($1::timestamptz, clock_timestamp()), late_result = r.result,
       status_code = coalesce(a.status_code, r.status_code), url = coalesce(a.url, r.url)
  FROM unnest($2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::int[], $7::text[])
    AS r(org_id, task_id, fence, result, status_code, url)
 WHERE a.org_id = r.org_id AND a.task_id = r.task_id AND a.fence = r.fence AND a.late_at IS NULL;
