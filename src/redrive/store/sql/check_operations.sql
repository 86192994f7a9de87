-- check_operations: an operation's sums are what its items say, and a completed one has done them all.
SELECT o.org_id, o.id,
       format('the operation (%s) says %s of %s done, %s succeeded, %s failed; of its %s items %s succeeded, %s failed, %s wait',
              o.state, o.done, o.total, o.succeeded, o.failed, i.total, i.succeeded, i.failed, i.waiting) AS detail
  FROM redrive.operation o
 CROSS JOIN LATERAL (
   SELECT count(*) AS total, count(*) FILTER (WHERE i.state = 'succeeded') AS succeeded,
          count(*) FILTER (WHERE i.state = 'failed') AS failed, count(*) FILTER (WHERE i.state = 'waiting') AS waiting
     FROM redrive.operation_item i WHERE i.org_id = o.org_id AND i.operation_id = o.id) i
 WHERE (o.total, o.succeeded, o.failed, o.total - o.dispatched) <> (i.total, i.succeeded, i.failed, i.waiting)
    OR o.done <> o.succeeded + o.failed OR (o.state = 'completed' AND o.done <> o.total)
 LIMIT 11;
