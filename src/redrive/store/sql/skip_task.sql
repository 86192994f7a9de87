-- skip_task: a waiting or held task dies because a person said so. $1 org, $2 task, $3 now, $4 category, $5 fingerprint, $6 error.
WITH died AS (
  UPDATE redrive.task t SET state = 'dead', reason = 'skipped', due_at = 'infinity', expedited = false,
         updated_at = coalesce($3::timestamptz, clock_timestamp())
   WHERE t.org_id = $1 AND t.id = $2 AND t.state IN ('waiting', 'held')
  RETURNING t.*)
INSERT INTO redrive.dead_letter AS d (org_id, task_id, state, kind, event_id, endpoint_id, event_type, external_system,
                                      reason, category, fingerprint, error_message, config, first_failed_at,
                                      failed_at, generation, created_at, updated_at)
SELECT org_id, id, 'open', kind, event_id, endpoint_id, event_type, left(external_system, 256), 'skipped', $4, $5, $6,
       redrive.config_of(org_id, endpoint_id), first_failed_at, updated_at, generation, updated_at, updated_at
  FROM died
ON CONFLICT (org_id, task_id) DO UPDATE SET
       state = 'open', reason = 'skipped', category = excluded.category, fingerprint = excluded.fingerprint,
       error_message = excluded.error_message, config = excluded.config, failed_at = excluded.failed_at, generation = excluded.generation,
       created_at = excluded.created_at, updated_at = excluded.updated_at, replay_outcome = 'failed'
RETURNING d.failed_at;
