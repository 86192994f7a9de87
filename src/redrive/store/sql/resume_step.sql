-- resume_step: the run has come to a step that had died: a new generation of its task, and its letter is replayed.
-- $1 org, $2 task, $3 now (NULL: the database's clock), $4 the edit in force (NULL: none), $5, $6 and $7 its URL, its problem and
-- its headers (JSON) as they are now, $8 in how many seconds it is due, $9 the
-- policy that it is under from now on (NULL: as before). The task and its letter are locked.
WITH clock AS MATERIALIZED (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now),
letter AS (
  UPDATE redrive.dead_letter d SET state = 'replaying', replay_outcome = NULL, closed_at = NULL, closed_by = NULL, closed_because = NULL,
         updated_at = clock.now
    FROM clock WHERE d.org_id = $1 AND d.task_id = $2 AND d.state <> 'deleted'
  RETURNING d.org_id, d.task_id),
alive AS (
  UPDATE redrive.task t SET state = 'waiting', reason = NULL, generation = t.generation + 1, attempts = 0,
         begun_at = clock.now + make_interval(secs => $8), due_at = clock.now + make_interval(secs => $8), updated_at = clock.now, edit = $4::integer,
         trial = false, policy_id = coalesce($9::uuid, t.policy_id)
    FROM clock, letter l WHERE t.org_id = l.org_id AND t.id = l.task_id AND t.state = 'dead'
  RETURNING t.queue, t.org_id, t.endpoint_id, t.run_id, t.step),
noted AS (
  UPDATE redrive.step s SET url = $5, problem = $6, headers = $7
    FROM alive a WHERE s.org_id = a.org_id AND s.run_id = a.run_id AND s.index = a.step)
SELECT redrive.tell(array_agg(a.queue), array_agg(a.org_id), array_agg(a.endpoint_id)) FROM alive a;
