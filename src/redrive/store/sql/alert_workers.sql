-- alert_workers: for how long no worker was heard of, and for how long the last one is gone where it ended in good order; NULL where there is
-- no such. Who fell silent long before that one left had been replaced: nobody misses them. $1 now, $2 the job that every worker runs.
SELECT CASE WHEN w.seen_at > clock.now THEN 0 ELSE extract(epoch FROM clock.now - w.seen_at) END::float8 AS silent_s,
       CASE WHEN j.left_at > clock.now THEN 0 ELSE extract(epoch FROM clock.now - j.left_at) END::float8 AS left_s
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) clock
  LEFT JOIN redrive.job j ON j.name = $2
  LEFT JOIN LATERAL (
    SELECT k.seen_at FROM redrive.worker k
     WHERE j.left_at IS NULL OR k.seen_at >= j.left_at - interval '1 minute' ORDER BY k.seen_at DESC LIMIT 1) w ON true;
