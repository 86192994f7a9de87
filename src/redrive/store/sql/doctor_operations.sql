-- doctor_operations: bulk actions that stand still: paused by themselves (the note says why), or whose next step nobody takes.
-- $1 now (NULL: the database's clock), $2 seconds that a step may be late.
SELECT o.id, g.name AS org, o.action, o.state, o.note, o.total, o.done,
       extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - o.step_at)::float8 AS late_s
  FROM redrive.operation o JOIN redrive.org g ON g.org_id = o.org_id
 WHERE o.finished_at IS NULL
   AND (o.active AND o.step_at <= coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8)
        OR o.state = 'paused' AND o.note IS NOT NULL)
 ORDER BY o.created_at LIMIT 20;
