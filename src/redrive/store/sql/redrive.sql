-- redrive: a new generation of a dead task, as just after a first failure. $1 org, $2 task, $3 now, $4 delay, $5 who, $6 why,
-- $7 the policy that it runs under from now on (NULL: as before), $8 the edit in force (NULL: none).
WITH clock AS MATERIALIZED (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now),
alive AS (
  UPDATE redrive.task t SET state = 'waiting', reason = NULL, generation = t.generation + 1, attempts = 1,
         begun_at = clock.now, due_at = clock.now + make_interval(secs => $4), updated_at = clock.now,
         policy_id = coalesce($7::uuid, t.policy_id), edit = $8::integer
    FROM clock WHERE t.org_id = $1 AND t.id = $2 AND t.state = 'dead'
  RETURNING t.org_id, t.id, clock.now),
letter AS (
  UPDATE redrive.dead_letter d SET state = 'replaying', replays = d.replays + 1, replayed_at = a.now, replayed_by = $5,
         replayed_because = $6, replay_outcome = NULL, closed_at = NULL, closed_by = NULL, closed_because = NULL,
         updated_at = a.now
    FROM alive a WHERE d.org_id = a.org_id AND d.task_id = a.id)
SELECT pg_notify('redrive_due', '') FROM alive;
