-- settle_failed: close leases whose try failed, was given back, or may not be made. Where the fence moved on, nothing
-- changes and no row comes back. $1 now, then one array each; `verdict` is retry | await | die | release.
-- Programs that hand in by SQL may call a system by what no index takes: a dead letter has the beginning.
-- `why`: why no try was made, of a task whose letter shows the error of its last try. The last one is the worker. released: no try was made, so nothing is counted. await: only a person retries (due at infinity).
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
closed AS (
  UPDATE redrive.task t SET
         state = CASE WHEN r.verdict = 'die' THEN 'dead' ELSE 'waiting' END,
         attempts = t.attempts + r.tried,
         worker_id = NULL, lease_ends_at = NULL,
         due_at = CASE WHEN r.verdict IN ('retry', 'release') THEN clock.now + make_interval(secs => r.delay_s)
                       ELSE 'infinity' END,
         reason = r.reason,
         first_failed_at = CASE WHEN r.tried = 1 THEN coalesce(t.first_failed_at, clock.now) ELSE t.first_failed_at END,
         last_failed_at = CASE WHEN r.tried = 1 THEN clock.now ELSE t.last_failed_at END,
         blocked_since = CASE WHEN r.tried = 1 AND t.lane IS NOT NULL
                              THEN coalesce(t.blocked_since + (t.leased_at - least(t.due_at, t.leased_at)), clock.now)
                              ELSE t.blocked_since END,
         updated_at = clock.now
    FROM clock, unnest($2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::int[], $7::float8[], $8::text[], $9::text[],
                       $10::text[], $11::text[], $12::text[], $13::float8[], $14::int[], $15::text[], $16::text[],
                       $17::text[], $18::bytea[], $19::bool[], $20::bool[], $21::text[])
      AS r(org_id, id, fence, verdict, tried, delay_s, reason, category, fingerprint, error_message, error_stack, took_s,
           status_code, url, request_headers, response_headers, response_body, truncated, possible_duplicate, why)
   WHERE t.org_id = r.org_id AND t.id = r.id AND t.fence = r.fence AND t.worker_id IS NOT NULL
  RETURNING t.*, clock.now, r.verdict, r.tried, r.category, r.fingerprint, r.error_message, r.error_stack, r.took_s,
            r.status_code, r.url, r.request_headers, r.response_headers, r.response_body, r.truncated,
            r.possible_duplicate, r.why),
tried AS (
  INSERT INTO redrive.attempt (org_id, task_id, fence, generation, number, result, worker_id, started_at, ended_at,
                               status_code, category, possible_duplicate, truncated, error_message, error_stack, url,
                               request_headers, response_headers, response_body)
  SELECT org_id, id, fence, generation, attempts, CASE tried WHEN 1 THEN 'failed' ELSE 'released' END, $22::uuid,
         now - make_interval(secs => took_s), now, status_code, category, possible_duplicate, truncated, coalesce(why, error_message),
         error_stack, url, request_headers, response_headers, response_body
    FROM closed),
-- A 4xx under a policy that takes them quietly needs nobody: its letter is closed from the start, as that of a failed test is.
-- Not where it halts a lane, or a run waits for it.
deaths AS (
  SELECT c.*, CASE WHEN c.is_test THEN 'it was a test' WHEN quiet.is_so THEN 'its policy takes permanent failures quietly' END AS closed_because
    FROM closed c
    LEFT JOIN LATERAL (
      SELECT true AS is_so FROM redrive.policy p
       WHERE p.org_id = c.org_id AND p.id = c.policy_id AND (p.spec ->> 'quiet_permanent')::boolean
         AND NOT EXISTS (SELECT FROM redrive.endpoint e
                          WHERE e.org_id = c.org_id AND e.id = c.endpoint_id AND c.lane IS NOT NULL AND e.on_block = 'halt')
      ) quiet ON c.reason = 'permanent' AND c.status_code BETWEEN 400 AND 499 AND c.run_id IS NULL
   WHERE c.verdict = 'die'),
died AS (
  INSERT INTO redrive.dead_letter AS d (org_id, task_id, state, kind, event_id, endpoint_id, event_type, external_system,
                                        reason, category, fingerprint, error_message, config, first_failed_at,
                                        failed_at, generation, created_at, updated_at, closed_at, closed_by,
                                        closed_because)
  SELECT org_id, id, CASE WHEN closed_because IS NULL THEN 'open' ELSE 'ignored' END, kind, event_id, endpoint_id, event_type,
         left(external_system, 256), reason, category, fingerprint, error_message, redrive.config_of(org_id, endpoint_id),
         first_failed_at, now, generation, now, now,
         CASE WHEN closed_because IS NOT NULL THEN now END, CASE WHEN closed_because IS NOT NULL THEN 'engine' END, closed_because
    FROM deaths
  ON CONFLICT (org_id, task_id) DO UPDATE SET
         state = excluded.state, reason = excluded.reason, category = excluded.category, fingerprint = excluded.fingerprint,
         error_message = excluded.error_message, config = excluded.config, failed_at = excluded.failed_at, generation = excluded.generation,
         created_at = excluded.created_at, updated_at = excluded.updated_at, replay_outcome = 'failed',
         closed_at = excluded.closed_at, closed_by = excluded.closed_by, closed_because = excluded.closed_because)
SELECT org_id, id, fence, nullif(due_at, 'infinity') AS due_at, now FROM closed;
