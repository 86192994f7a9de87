-- settle_succeeded: close leases whose try succeeded; answers how many. Where the fence moved on, nothing changes.
-- A lease is on while worker_id is set: asking for the state would invite the planner to the index of what is due.
-- $1 now, then one array each: org, task, fence, seconds the try took, and the exchange: url, request headers,
-- status code, response headers, response body, truncated; last the worker.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
closed AS (
  UPDATE redrive.task t SET
         state = 'succeeded', attempts = t.attempts + 1, worker_id = NULL, lease_ends_at = NULL,
         due_at = 'infinity', updated_at = clock.now
    FROM clock, unnest($2::uuid[], $3::uuid[], $4::int[], $5::float8[], $6::text[], $7::text[], $8::int[], $9::text[],
                       $10::bytea[], $11::bool[])
      AS r(org_id, id, fence, took_s, url, request_headers, status_code, response_headers, response_body, truncated)
   WHERE t.org_id = r.org_id AND t.id = r.id AND t.fence = r.fence AND t.worker_id IS NOT NULL
  RETURNING t.org_id, t.id, t.fence, t.generation, t.attempts, clock.now, r.took_s, r.status_code, r.url,
            r.request_headers, r.response_headers, r.response_body, r.truncated),
tried AS (
  INSERT INTO redrive.attempt (org_id, task_id, fence, generation, number, result, worker_id, started_at, ended_at,
                               status_code, truncated, url, request_headers, response_headers, response_body)
  SELECT org_id, id, fence, generation, attempts, 'succeeded', $12::uuid, now - make_interval(secs => took_s), now, status_code,
         truncated, url, request_headers, response_headers, response_body
    FROM closed),
resolved AS (
  UPDATE redrive.dead_letter d SET
         state = 'resolved', replay_outcome = 'succeeded', closed_at = c.now, closed_by = d.replayed_by,
         closed_because = d.replayed_because, updated_at = c.now
    FROM closed c
   WHERE c.generation > 0 AND d.org_id = c.org_id AND d.task_id = c.id)
SELECT count(*) AS n FROM closed;
