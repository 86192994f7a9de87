-- redrive_many: as redrive, for tasks that are locked. $1 now, $2 org, $3 tasks, $4 delays, $5 who, $6 why,
-- $7 where in their lanes (NULL: as for one), $8 whether each goes before all others, $9 whether it is tried once
-- only.
-- Those of a lane keep their order among each other.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
chosen AS MATERIALIZED (
  SELECT o.*, CASE WHEN o.lane IS NOT NULL AND NOT o.keeps THEN redrive.new_place(nextval('redrive.task_place'), 0) END AS new_place, clock.now
    FROM clock, (
      SELECT t.org_id, t.id, g.delay_s, t.lane, t.place, g.goes_first, coalesce(g.lane_order = 'in_place', l.halted_at IS NOT NULL) AS keeps
        FROM unnest($3::uuid[], $4::float8[], $7::text[], $8::boolean[]) AS g(id, delay_s, lane_order, goes_first)
        JOIN redrive.task t ON t.org_id = $2::uuid AND t.id = g.id
        LEFT JOIN redrive.lane l ON l.org_id = t.org_id AND l.lane = t.lane
       ORDER BY t.place) o),
alive AS (
  UPDATE redrive.task t SET state = 'waiting', reason = NULL, generation = t.generation + 1, attempts = CASE WHEN t.run_id IS NULL THEN 1 ELSE 0 END,
         begun_at = c.now, blocked_since = NULL, due_at = c.now + make_interval(secs => c.delay_s), updated_at = c.now,
         expedited = c.goes_first, trial = $9::boolean, behind = CASE WHEN c.lane IS NOT NULL THEN true END, place = coalesce(c.new_place, t.place),
         out_of_order = CASE WHEN t.out_of_order OR c.lane IS NOT NULL AND NOT c.keeps THEN true END
    FROM chosen c
   WHERE t.org_id = c.org_id AND t.id = c.id
  RETURNING t.org_id, t.id, t.lane, c.now),
letter AS (
  UPDATE redrive.dead_letter d SET state = 'replaying', replays = d.replays + 1, replayed_at = a.now, replayed_by = $5,
         replayed_because = $6, replay_outcome = NULL, closed_at = NULL, closed_by = NULL, closed_because = NULL,
         updated_at = a.now
    FROM alive a WHERE d.org_id = a.org_id AND d.task_id = a.id
  RETURNING 1),
woken AS (
  INSERT INTO redrive.lane_wake (org_id, lane) SELECT DISTINCT org_id, lane FROM alive WHERE lane IS NOT NULL)
SELECT count(*) AS n, pg_notify('redrive_due', '') IS NULL AS told FROM letter;
