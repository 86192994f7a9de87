-- redrive: a new generation of a dead task, as just after a first failure; a step's begins with no try made. $1 org, $2 task, $3 now, $4 delay, $5 who, $6 why,
-- $7 the policy that it runs under from now on (NULL: as before), $8 the edit in force (NULL: none), $9 where in its lane:
-- 'in_place' or 'tail'. (NULL: in its place while the lane is halted, else at the tail.) It waits there for its turn. $10 whether a person
-- wants the try now, $11 whether it is the only one.
-- Whether later ones of its lane were delivered since it died is known when it is claimed.
WITH clock AS MATERIALIZED (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now),
turn AS MATERIALIZED (
  SELECT t.id, t.lane, t.lane IS NOT NULL AND coalesce($9::text = 'in_place', l.halted_at IS NOT NULL) AS keeps
    FROM redrive.task t LEFT JOIN redrive.lane l ON l.org_id = t.org_id AND l.lane = t.lane
   WHERE t.org_id = $1 AND t.id = $2 AND t.state = 'dead'),
alive AS (
  UPDATE redrive.task t SET state = 'waiting', reason = NULL, generation = t.generation + 1, attempts = CASE WHEN t.run_id IS NULL THEN 1 ELSE 0 END,
         begun_at = clock.now, blocked_since = NULL, due_at = clock.now + make_interval(secs => $4), updated_at = clock.now,
         expedited = $10::boolean, trial = $11::boolean, policy_id = coalesce($7::uuid, t.policy_id), edit = $8::integer,
         behind = CASE WHEN turn.lane IS NOT NULL THEN true END,
         place = CASE WHEN turn.lane IS NULL OR turn.keeps THEN t.place ELSE redrive.new_place(nextval('redrive.task_place'), 0) END,
         out_of_order = CASE WHEN t.out_of_order OR turn.lane IS NOT NULL AND NOT turn.keeps THEN true END
    FROM clock, turn WHERE t.org_id = $1 AND t.id = turn.id AND t.state = 'dead'
  RETURNING t.org_id, t.id, t.lane, clock.now),
letter AS (
  UPDATE redrive.dead_letter d SET state = 'replaying', replays = d.replays + 1, replayed_at = a.now, replayed_by = $5,
         replayed_because = $6, replay_outcome = NULL, closed_at = NULL, closed_by = NULL, closed_because = NULL,
         updated_at = a.now
    FROM alive a WHERE d.org_id = a.org_id AND d.task_id = a.id),
woken AS (
  INSERT INTO redrive.lane_wake (org_id, lane) SELECT org_id, lane FROM alive WHERE lane IS NOT NULL)
SELECT pg_notify('redrive_due', '') FROM alive;
