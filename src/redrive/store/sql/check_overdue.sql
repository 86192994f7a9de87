-- check_overdue: nothing that is due, and no lease that ended, is left lying. Held tasks wait for a person.
-- $1 now (NULL: the database's clock), $2 grace in seconds.
SELECT t.org_id, t.id, format('the task (queue %s) is %s and was due at %s', t.queue, t.state, coalesce(t.lease_ends_at, t.due_at)) AS detail
  FROM redrive.task t
 WHERE t.live
   AND coalesce(t.lease_ends_at, t.due_at) < coalesce($1::timestamptz, transaction_timestamp()) - make_interval(secs => $2::float8)
 ORDER BY coalesce(t.lease_ends_at, t.due_at)
 LIMIT 11;
