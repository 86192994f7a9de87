-- put_off_step: a step that waits begins to wait now, since it was redriven. $1 org, $2 task, $3 now (NULL: the database's clock), $4 how
-- many seconds it waits.
UPDATE redrive.task SET due_at = c.now + make_interval(secs => $4), begun_at = c.now + make_interval(secs => $4)
  FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) c
 WHERE org_id = $1 AND id = $2 AND state = 'waiting';
