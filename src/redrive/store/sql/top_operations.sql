-- top_operations: bulk actions that have not ended, newest first. $1 org (NULL: all), $2 limit.
SELECT g.name AS org, o.id, o.action, o.state, o.total, o.done, o.failed, o.actor AS by
  FROM redrive.operation o JOIN redrive.org g ON g.org_id = o.org_id
 WHERE o.finished_at IS NULL AND ($1::uuid IS NULL OR o.org_id = $1)
 ORDER BY o.id DESC LIMIT $2;
