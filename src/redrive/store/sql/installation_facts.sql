-- installation_facts: what is known of the installation at once. $1 now (NULL: the database's clock), $2 seconds after which a worker that
-- was not heard of is not counted.
SELECT (SELECT count(*) FROM redrive.worker w
         WHERE w.seen_at > coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8))::bigint AS workers,
       (SELECT m.version FROM redrive.schema_migration m ORDER BY m.version DESC LIMIT 1) AS schema_version, o.age_s, o.xmin_age
  FROM redrive.oldest_transaction() o;
