-- list_workers: those heard of last, first. $1 now, $2 limit.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT w.id, w.started_at, w.seen_at, w.host, w.pid, w.version, w.queues, w.concurrency,
       greatest(extract(epoch FROM clock.now - w.seen_at), 0)::float8 AS silent_s
  FROM redrive.worker w, clock ORDER BY w.seen_at DESC, w.id LIMIT $2;
