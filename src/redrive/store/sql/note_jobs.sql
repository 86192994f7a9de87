-- note_jobs: how jobs go in a process that runs them. $1 now, $2 seconds of silence after which who runs it has just begun, then by job:
-- $3 name, $4 how often it is expected, and how long ago it last $5 began, $6 ended, $7 succeeded, $8 failed, with $9 which error.
-- Many processes run the same jobs: a report moves times forward, never back. In the order of their names: two reports never wait in a ring.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
INSERT INTO redrive.job AS j (name, every_s, since, seen_at, began_at, ended_at, succeeded_at, failed_at, error)
SELECT r.name, r.every_s, clock.now, clock.now, clock.now - make_interval(secs => r.began), clock.now - make_interval(secs => r.ended),
       clock.now - make_interval(secs => r.succeeded), clock.now - make_interval(secs => r.failed), r.error
  FROM clock, unnest($3::text[], $4::float8[], $5::float8[], $6::float8[], $7::float8[], $8::float8[], $9::text[])
         AS r(name, every_s, began, ended, succeeded, failed, error)
 ORDER BY r.name
ON CONFLICT (name) DO UPDATE SET
  every_s = excluded.every_s,
  since = CASE WHEN j.seen_at < excluded.seen_at - make_interval(secs => $2::float8) THEN excluded.seen_at ELSE j.since END,
  seen_at = greatest(j.seen_at, excluded.seen_at),
  left_at = NULL,
  began_at = greatest(j.began_at, excluded.began_at),
  ended_at = greatest(j.ended_at, excluded.ended_at),
  succeeded_at = greatest(j.succeeded_at, excluded.succeeded_at),
  failed_at = greatest(j.failed_at, excluded.failed_at),
  error = CASE WHEN j.failed_at IS NULL OR excluded.failed_at >= j.failed_at THEN excluded.error ELSE j.error END;
