-- forget_jobs: those that no process has run for so long that nobody expects them to. $1 now, $2 seconds.
DELETE FROM redrive.job WHERE seen_at < coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8);
