-- note_jobs: how jobs go in a process that runs them. $1 now, $2 seconds of silence after which who runs it has just begun, then by job:
-- $3 name, $4 how often it is expected, and how long ago it last $5 began, $6 ended, $7 succeeded, $8 failed, with $9 which error.
-- Many processes run the same jobs: a report moves times forward, back only with the clock. In the order of their names: two reports never wait in a ring.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
INSERT INTO redrive.job AS j (name, every_s, since, seen_at, began_at, ended_at, succeeded_at, failed_at, error)
SELECT r.name, r.every_s, clock.now, clock.now, clock.now - make_interval(secs => r.began), clock.now - make_interval(secs => r.ended),
       clock.now - make_interval(secs => r.succeeded), clock.now - make_interval(secs => r.failed), r.error
  FROM clock, unnest($3::text[], $4::float8[], $5::float8[], $6::float8[], $7::float8[], $8::float8[], $9::text[])
         AS r(name, every_s, began, ended, succeeded, failed, error)
 ORDER BY r.name
ON CONFLICT (name) DO UPDATE SET
  every_s = excluded.every_s,
  left_at = NULL,
  (since, seen_at, began_at, ended_at, succeeded_at, failed_at, error) = (
    SELECT CASE WHEN o.seen_at >= excluded.seen_at - make_interval(secs => $2::float8) THEN o.since ELSE excluded.seen_at END,
           greatest(o.seen_at, excluded.seen_at), greatest(o.began_at, excluded.began_at), greatest(o.ended_at, excluded.ended_at),
           greatest(o.succeeded_at, excluded.succeeded_at), greatest(o.failed_at, excluded.failed_at),
           CASE WHEN o.failed_at IS NULL OR excluded.failed_at >= o.failed_at THEN excluded.error ELSE o.error END
      -- Without what lies ahead: the clock was set back since, and until it is there again nothing would be missed.
      FROM (VALUES (1)) AS one
      LEFT JOIN LATERAL (SELECT j.since, j.seen_at, j.began_at, j.ended_at, j.succeeded_at, j.failed_at, j.error
                          WHERE j.seen_at <= excluded.seen_at + make_interval(secs => $2::float8)) o ON true);
