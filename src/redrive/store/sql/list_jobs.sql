-- list_jobs: by name. $1 now, $2 limit.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT j.name, j.every_s, j.since, j.seen_at, j.left_at, j.began_at, j.ended_at, j.succeeded_at, j.failed_at, j.error,
       greatest(extract(epoch FROM clock.now - greatest(j.since, j.succeeded_at)), 0)::float8 AS idle_s,
       greatest(extract(epoch FROM clock.now - j.seen_at), 0)::float8 AS unseen_s,
       CASE WHEN j.left_at IS NOT NULL THEN greatest(extract(epoch FROM clock.now - j.left_at), 0)::float8 END AS left_s
  FROM redrive.job j, clock ORDER BY j.name LIMIT $2;
