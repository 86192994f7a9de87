-- check_operations: an operation's sums are what its items say, and a completed one has done them all. Those that ended so long
-- ago that the janitor may be removing them are left out; no item is without its operation.
-- $1 now (NULL: the database's clock), $2 grace in seconds.
SELECT o.org_id, o.id,
       format('the operation (%s) says %s of %s done, %s succeeded, %s failed; of its %s items %s succeeded, %s failed, %s wait',
              o.state, o.done, o.total, o.succeeded, o.failed, i.total, i.succeeded, i.failed, i.waiting) AS detail
  FROM redrive.operation o
 CROSS JOIN LATERAL (
   SELECT count(*) AS total, count(*) FILTER (WHERE i.state = 'succeeded') AS succeeded,
          count(*) FILTER (WHERE i.state = 'failed') AS failed, count(*) FILTER (WHERE i.state = 'waiting') AS waiting
     FROM redrive.operation_item i WHERE i.org_id = o.org_id AND i.operation_id = o.id) i
 WHERE ((o.total, o.succeeded, o.failed, o.total - o.dispatched) <> (i.total, i.succeeded, i.failed, i.waiting)
        OR o.done <> o.succeeded + o.failed OR (o.state = 'completed' AND o.done <> o.total))
   AND (o.finished_at IS NULL
        OR o.finished_at > coalesce($1::timestamptz, transaction_timestamp()) + make_interval(days => -90, secs => $2::float8))
UNION ALL
SELECT i.org_id, i.operation_id, format('item %s belongs to no operation', i.n)
  FROM redrive.operation_item i
 WHERE NOT EXISTS (SELECT FROM redrive.operation o WHERE o.org_id = i.org_id AND o.id = i.operation_id)
 LIMIT 11;
