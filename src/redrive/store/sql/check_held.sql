-- check_held: whoever enables or deletes an endpoint releases what is held for it, so the endpoint of a held task is
-- there and disabled.
SELECT t.org_id, t.id,
       'held for nobody: ' || CASE WHEN t.endpoint_id IS NULL THEN 'the task has no endpoint'
                                   WHEN e.id IS NULL THEN format('endpoint %s does not exist', t.endpoint_id)
                                   WHEN e.deleted_at IS NOT NULL THEN format('endpoint %s was deleted', t.endpoint_id)
                                   ELSE format('endpoint %s is not disabled', t.endpoint_id) END AS detail
  FROM redrive.task t
  LEFT JOIN redrive.endpoint e ON e.org_id = t.org_id AND e.id = t.endpoint_id
 WHERE t.state = 'held' AND (e.id IS NULL OR e.disabled_at IS NULL OR e.deleted_at IS NOT NULL)
 LIMIT 11;
