-- skip_many: as skip_task, for tasks that are locked. $1 now, $2 org, $3 tasks, $4 categories, $5 fingerprints, $6 errors.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
chosen AS MATERIALIZED (
  SELECT $2::uuid AS org_id, g.* FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[])
    AS g(id, category, fingerprint, message)),
died AS (
  UPDATE redrive.task t SET state = 'dead', reason = 'skipped', due_at = 'infinity', expedited = false,
         updated_at = clock.now
    FROM clock, chosen c
   WHERE t.org_id = c.org_id AND t.id = c.id
  RETURNING t.*, c.category, c.fingerprint, c.message),
letter AS (
  INSERT INTO redrive.dead_letter AS d (org_id, task_id, state, kind, event_id, endpoint_id, event_type, external_system,
                                        reason, category, fingerprint, error_message, config, first_failed_at,
                                        failed_at, generation, created_at, updated_at)
  SELECT org_id, id, 'open', kind, event_id, endpoint_id, event_type, left(external_system, 256), 'skipped', category, fingerprint,
         message, redrive.config_of(org_id, endpoint_id), first_failed_at, updated_at, generation, updated_at, updated_at
    FROM died
  ON CONFLICT (org_id, task_id) DO UPDATE SET
         state = 'open', reason = 'skipped', category = excluded.category, fingerprint = excluded.fingerprint,
         error_message = excluded.error_message, config = excluded.config, failed_at = excluded.failed_at,
         generation = excluded.generation, created_at = excluded.created_at, updated_at = excluded.updated_at,
         replay_outcome = 'failed'
  RETURNING 1)
SELECT count(*) AS n, (SELECT now FROM clock) AS now FROM letter;
