-- schedule_task: a person moves the next try of a waiting task. $1 org, $2 task, $3 now, $4 when, or else $5 seconds from
-- now, $6 how many seconds from now it may be at most. No row: it is too far away.
WITH wanted AS (
  SELECT c.now, greatest(coalesce($4::timestamptz, c.now + make_interval(secs => $5::float8)), c.now) AS due_at
    FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) c),
moved AS (
  UPDATE redrive.task t SET due_at = w.due_at, expedited = false, updated_at = w.now
    FROM wanted w
   WHERE t.org_id = $1 AND t.id = $2 AND t.state = 'waiting' AND w.due_at <= w.now + make_interval(secs => $6::float8)
  RETURNING t.due_at)
SELECT due_at, pg_notify('redrive_due', '') FROM moved;
