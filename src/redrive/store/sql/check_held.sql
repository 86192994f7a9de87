-- check_held: something holds a held task: its endpoint is there and disabled or paused, or the org or the installation is
-- paused. Where that was lifted, tasks are released one batch after the other, which may take as long as the grace.
-- $1 now (NULL: the database's clock), $2 grace in seconds.
SELECT t.org_id, t.id,
       'held for nobody: ' || CASE WHEN t.endpoint_id IS NULL THEN 'the task has no endpoint'
                                   WHEN e.id IS NULL THEN format('endpoint %s does not exist', t.endpoint_id)
                                   WHEN e.deleted_at IS NOT NULL THEN format('endpoint %s was deleted', t.endpoint_id)
                                   ELSE format('endpoint %s is neither disabled nor paused', t.endpoint_id) END
         || ', and neither its org nor the installation is paused' AS detail
  FROM redrive.task t
  LEFT JOIN redrive.endpoint e ON e.org_id = t.org_id AND e.id = t.endpoint_id
  LEFT JOIN redrive.org o ON o.org_id = t.org_id
 CROSS JOIN redrive.installation i
 WHERE t.state = 'held' AND i.paused_at IS NULL AND o.paused_at IS NULL
   AND (e.id IS NULL OR e.deleted_at IS NOT NULL OR (e.disabled_at IS NULL AND e.paused_at IS NULL))
   AND greatest(t.updated_at, e.updated_at, o.resumed_at, i.resumed_at)
       < coalesce($1::timestamptz, transaction_timestamp()) - make_interval(secs => $2::float8)
 LIMIT 11;
