-- doctor_transactions: sessions in this database whose transaction has lasted for $1 seconds or more, or whose snapshot is so old that vacuum removes
-- nothing newer, the oldest first. Of other logins PostgreSQL may hide what a session is and when its transaction began: then its age in transactions tells.
-- $2 transactions, $3 now (NULL: the database's clock).
SELECT a.pid, coalesce(a.usename, '?')::text AS login, a.application_name AS program, host(a.client_addr) AS host, a.state,
       a.backend_type, a.wait_event, extract(epoch FROM coalesce($3::timestamptz, clock_timestamp()) - a.xact_start)::float8 AS since_s,
       coalesce(age(a.backend_xmin), age(a.backend_xid)) AS xids, a.xact_start
  FROM pg_stat_activity a
 WHERE a.pid <> pg_backend_pid() AND (a.datname = current_database() OR a.backend_type = 'walsender')
   AND coalesce(a.backend_type, 'client backend') IN ('client backend', 'walsender', 'parallel worker') AND a.usesysid IS NOT NULL
   AND (a.xact_start <= coalesce($3::timestamptz, clock_timestamp()) - make_interval(secs => $1::float8)
        OR (a.xact_start IS NULL AND age(a.backend_xmin) > $2::int))
 ORDER BY a.xact_start NULLS LAST LIMIT 20;
