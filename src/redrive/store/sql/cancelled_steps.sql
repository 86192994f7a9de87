-- cancelled_steps: of these tasks, those whose run was cancelled. $1 orgs, $2 tasks.
SELECT t.org_id, t.id, t.state, t.queue, t.kind, t.endpoint_id
  FROM unnest($1::uuid[], $2::uuid[]) AS r(org_id, id)
  JOIN redrive.task t ON t.org_id = r.org_id AND t.id = r.id
  JOIN redrive.run u ON u.org_id = t.org_id AND u.id = t.run_id
 WHERE u.cancelled_at IS NOT NULL;
