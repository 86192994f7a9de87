-- alert_workers: for how long no worker was heard of; no row where none is known. $1 now.
SELECT greatest(extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - w.seen_at), 0)::float8 AS silent_s
  FROM redrive.worker w ORDER BY w.seen_at DESC LIMIT 1;
