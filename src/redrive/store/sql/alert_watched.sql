-- alert_watched: for how long somebody has been looking at the rules without a break. $1 now.
SELECT greatest(extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - r.since), 0)::float8 AS watched_s FROM redrive.alert_round r;
