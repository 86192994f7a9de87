-- close_parked: runs that were cancelled do not come to the steps whose letters wait for them (see park_letters): nobody need look at
-- those any more. $1 now (NULL: the database's clock), $2 orgs, $3 runs. The runs are locked.
UPDATE redrive.dead_letter d SET state = 'ignored', replay_outcome = 'failed', updated_at = c.now, closed_at = c.now,
       closed_by = u.cancelled_by, closed_because = coalesce(u.cancelled_because, 'the run was cancelled')
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) c,
       unnest($2::uuid[], $3::uuid[]) AS r(org_id, id)
  JOIN redrive.run u ON u.org_id = r.org_id AND u.id = r.id
  JOIN redrive.task t ON t.org_id = u.org_id AND t.run_id = u.id AND t.state = 'dead'
 WHERE d.org_id = t.org_id AND d.task_id = t.id AND d.state = 'replaying';
