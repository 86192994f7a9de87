-- forget_workers: those that have been silent for too long to matter. $1 now, $2 seconds.
DELETE FROM redrive.worker WHERE seen_at < coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8);
