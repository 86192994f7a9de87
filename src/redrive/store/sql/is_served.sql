-- is_served: whether a worker that serves a queue was heard of lately. $1 now, $2 queue, $3 seconds.
SELECT EXISTS (
  SELECT FROM redrive.worker w
   WHERE $2::text = ANY (w.queues)
     AND w.seen_at > coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $3)) AS is_so;
