-- count_old_notices: how many delete_notices would remove. $1 org, $2 now, $3 seconds.
SELECT count(*) AS n FROM redrive.notice n
 WHERE n.org_id = $1 AND n.at < $2::timestamptz - make_interval(secs => $3::float8) AND n.told_at IS NOT NULL;
