-- check_overdue: nothing that is due, and no lease that ended, is left lying. Held tasks wait for a person.
-- $1 now (NULL: the database's clock), $2 grace in seconds.
SELECT t.org_id, t.id, format('the task (queue %s) is %s and was due at %s', t.queue, t.state, t.due_at) AS detail
  FROM redrive.task t
 WHERE t.state IN ('waiting', 'leased')
   AND t.due_at < coalesce($1::timestamptz, transaction_timestamp()) - make_interval(secs => $2::float8)
 ORDER BY t.due_at
 LIMIT 11;
