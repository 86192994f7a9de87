-- expire_many: tasks that are too old die, as they would where a worker met them. What a worker has in hand, or a person has redriven
-- since it was picked, is left alone; of a lease that ran out, the lost try is recorded, as in a claim. $1 now (NULL: the database's clock: a pass takes long, and a death is as old as it is),
-- $2 org, $3 tasks, $4 when their generations began, $5 fingerprints, $6 errors, $7 their categories.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
chosen AS MATERIALIZED (
  SELECT t.org_id, t.id, t.state = 'leased' AS lost, t.worker_id AS lost_by, t.leased_at AS lost_since, g.fingerprint, g.message, g.category
    FROM clock, unnest($3::uuid[], $4::timestamptz[], $5::text[], $6::text[], $7::text[]) AS g(id, begun_at, fingerprint, message, category)
    JOIN redrive.task t ON t.org_id = $2 AND t.id = g.id
   WHERE t.open AND (t.lease_ends_at IS NULL OR t.lease_ends_at <= clock.now) AND t.begun_at = g.begun_at
     FOR UPDATE OF t SKIP LOCKED),
died AS (
  UPDATE redrive.task t SET state = 'dead', reason = 'expired', due_at = 'infinity', expedited = false, updated_at = clock.now,
         worker_id = NULL, lease_ends_at = NULL, attempts = t.attempts + c.lost::int,
         first_failed_at = CASE WHEN c.lost THEN coalesce(t.first_failed_at, clock.now) ELSE t.first_failed_at END,
         last_failed_at = CASE WHEN c.lost THEN clock.now ELSE t.last_failed_at END
    FROM clock, chosen c
   WHERE t.org_id = c.org_id AND t.id = c.id
  RETURNING t.*, c.lost, c.lost_by, c.lost_since, c.fingerprint, c.message, c.category),
lost AS (
  INSERT INTO redrive.attempt (org_id, task_id, fence, generation, number, result, worker_id, started_at, ended_at,
                               category, possible_duplicate, error_message, error_stack)
  SELECT org_id, id, fence, generation, attempts, 'lost', lost_by, lost_since, updated_at,
         'timeout', true, 'The worker did not report before its lease ended: it died, hung, or was cut off.',
         format('Lease of worker %s, taken at %s, not settled at %s.', lost_by, lost_since, updated_at)
    FROM died WHERE lost),
letter AS (
  INSERT INTO redrive.dead_letter AS d (org_id, task_id, state, kind, event_id, endpoint_id, event_type, external_system,
                                        reason, category, fingerprint, error_message, config, first_failed_at,
                                        failed_at, generation, created_at, updated_at, closed_at, closed_by,
                                        closed_because)
  SELECT org_id, id, CASE WHEN is_test THEN 'ignored' ELSE 'open' END, kind, event_id, endpoint_id, event_type,
         left(external_system, 256), reason, category, fingerprint, message, redrive.config_of(org_id, endpoint_id),
         first_failed_at, updated_at, generation, updated_at, updated_at,
         CASE WHEN is_test THEN updated_at END, CASE WHEN is_test THEN 'engine' END, CASE WHEN is_test THEN 'it was a test' END
    FROM died
  ON CONFLICT (org_id, task_id) DO UPDATE SET
         state = 'open', reason = excluded.reason, category = excluded.category, fingerprint = excluded.fingerprint,
         error_message = excluded.error_message, config = excluded.config, failed_at = excluded.failed_at,
         generation = excluded.generation, created_at = excluded.created_at, updated_at = excluded.updated_at,
         replay_outcome = 'failed')
SELECT d.org_id, d.id, d.event_id, d.attempts, d.updated_at AS died_at, d.message, e.correlation_id, d.event_type, d.endpoint_id, d.run_id, d.step, e.submitted_by,
       (p.spec ->> 'max_retries')::integer AS max_retries
  FROM died d
  JOIN redrive.event e ON e.org_id = d.org_id AND e.id = d.event_id
  JOIN redrive.policy p ON p.org_id = d.org_id AND p.id = d.policy_id;
