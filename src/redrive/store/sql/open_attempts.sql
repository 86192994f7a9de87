-- open_attempts: a row for each subject, so that there is one to lock; some that are long past go. $2 now, $3 window.
WITH past AS (
  DELETE FROM redrive.login_attempt WHERE subject IN (
    SELECT a.subject FROM redrive.login_attempt a
     WHERE a.last_at < coalesce($2::timestamptz, clock_timestamp()) - $3::interval AND NOT a.subject = ANY ($1)
     ORDER BY a.last_at LIMIT 100 FOR UPDATE SKIP LOCKED))
INSERT INTO redrive.login_attempt (subject, failures, last_at)
SELECT s, 0, coalesce($2::timestamptz, clock_timestamp()) FROM unnest($1::bytea[]) AS s ORDER BY s
ON CONFLICT (subject) DO NOTHING;
