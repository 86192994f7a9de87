-- lock_attempts: in one order, whoever asks. $1 subjects, $2 now.
SELECT subject, failures, extract(epoch FROM coalesce($2::timestamptz, clock_timestamp()) - last_at)::float8 AS since_s
  FROM redrive.login_attempt WHERE subject = ANY ($1) ORDER BY subject FOR UPDATE;
