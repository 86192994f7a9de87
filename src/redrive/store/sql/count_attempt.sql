-- count_attempt. $1 subject, $2 failures, $3 now.
UPDATE redrive.login_attempt SET failures = $2, last_at = coalesce($3::timestamptz, clock_timestamp()) WHERE subject = $1;
