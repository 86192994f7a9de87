-- redrive_many: as redrive, for tasks that are locked. $1 now, $2 org, $3 tasks, $4 delays, $5 who, $6 why.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
chosen AS MATERIALIZED (
  SELECT $2::uuid AS org_id, g.id, g.delay_s, clock.now FROM clock, unnest($3::uuid[], $4::float8[]) AS g(id, delay_s)),
alive AS (
  UPDATE redrive.task t SET state = 'waiting', reason = NULL, generation = t.generation + 1, attempts = 1,
         begun_at = c.now, due_at = c.now + make_interval(secs => c.delay_s), updated_at = c.now
    FROM chosen c
   WHERE t.org_id = c.org_id AND t.id = c.id
  RETURNING t.org_id, t.id, c.now),
letter AS (
  UPDATE redrive.dead_letter d SET state = 'replaying', replays = d.replays + 1, replayed_at = a.now, replayed_by = $5,
         replayed_because = $6, replay_outcome = NULL, closed_at = NULL, closed_by = NULL, closed_because = NULL,
         updated_at = a.now
    FROM alive a WHERE d.org_id = a.org_id AND d.task_id = a.id
  RETURNING 1)
SELECT count(*) AS n, pg_notify('redrive_due', '') IS NULL AS told FROM letter;
