-- doctor_prepared: transactions of this database that were prepared and never ended. $1 seconds, $2 now (NULL: the database's clock).
SELECT p.gid, p.owner::text AS login, extract(epoch FROM coalesce($2::timestamptz, clock_timestamp()) - p.prepared)::float8 AS since_s
  FROM pg_prepared_xacts p
 WHERE p.database = current_database()
   AND p.prepared <= coalesce($2::timestamptz, clock_timestamp()) - make_interval(secs => $1::float8)
 ORDER BY p.prepared LIMIT 20;
