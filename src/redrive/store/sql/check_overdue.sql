-- check_overdue: nothing that is due, and no lease that ended, is left lying. Held tasks wait for a person, those behind others
-- of their lane for these, those of a limited endpoint for their turn, those of an open breaker for its end, those of a relay
-- for its hub: but neither a lease that ended nor what a deleted relay left needs one.
-- $1 now (NULL: the database's clock), $2 grace in seconds.
SELECT t.org_id, t.id, format('the task (queue %s) is %s and was due at %s', t.queue, t.state, coalesce(t.lease_ends_at, t.due_at)) AS detail
  FROM redrive.task t
  LEFT JOIN redrive.endpoint e ON e.org_id = t.org_id AND e.id = t.endpoint_id
  LEFT JOIN redrive.endpoint_state s ON s.org_id = t.org_id AND s.endpoint_id = t.endpoint_id
 WHERE t.live AND t.behind IS NULL
   AND coalesce(t.lease_ends_at, t.due_at) < coalesce($1::timestamptz, transaction_timestamp()) - make_interval(secs => $2::float8)
   AND NOT coalesce(e.kind = 'relay' AND e.deleted_at IS NULL AND t.state = 'waiting' OR s.breaker <> 'closed', false)
   AND (t.state = 'leased' OR (e.max_in_flight IS NULL AND e.rate_per_s IS NULL))
 ORDER BY coalesce(t.lease_ends_at, t.due_at)
 LIMIT 11;
