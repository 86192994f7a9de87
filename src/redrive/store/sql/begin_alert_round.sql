-- begin_alert_round: the round is ours where nobody has begun one for so long; else no row. $1 now, $2 seconds between two rounds,
-- $3 seconds without any after which nobody was looking. One short statement: what follows needs no lock of a session.
-- A time that lies ahead is of a clock that has been set back since: waiting for it would be looking away.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
INSERT INTO redrive.alert_round AS r (since, began_at) SELECT now, now FROM clock
ON CONFLICT (singleton) DO UPDATE SET
  since = CASE WHEN r.began_at BETWEEN excluded.began_at - make_interval(secs => $3::float8) AND excluded.began_at + make_interval(secs => $2::float8)
               THEN r.since ELSE excluded.since END,
  began_at = excluded.began_at
 WHERE r.began_at <= excluded.began_at - make_interval(secs => $2::float8)
    OR r.began_at > excluded.began_at + make_interval(secs => $2::float8)
RETURNING r.began_at AS now, extract(epoch FROM r.began_at - r.since)::float8 AS watched_s;
