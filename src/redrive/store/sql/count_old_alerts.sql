-- count_old_alerts: how many delete_alerts would remove. $1 org, $2 now, $3 seconds.
SELECT count(*) AS n FROM redrive.alert a WHERE a.org_id = $1 AND a.over_at < $2::timestamptz - make_interval(secs => $3::float8);
