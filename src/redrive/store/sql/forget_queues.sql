-- forget_queues: those of an org that no collector has seen for long make room for others. $1 org, $2 now, $3 seconds.
DELETE FROM redrive.broker_queue q
 WHERE q.org_id = $1::uuid AND q.seen_at < coalesce($2::timestamptz, clock_timestamp()) - make_interval(secs => $3::float8);
