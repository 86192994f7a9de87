-- doctor_vacuum: what autovacuum left of each table, since when, and how close the transaction ids are to their end. A table that was never vacuumed
-- counts from the start of the server. $1 now (NULL: the database's clock).
-- What the server has counted is lost when it crashes, fails over or is told to begin anew; what vacuum and ANALYZE found (reltuples) is not. Until one of
-- them has looked at a table, nobody knows how full it is (is_known).
SELECT s.relname::text AS name, greatest(s.n_live_tup, c.reltuples::bigint) AS live, s.n_dead_tup AS dead, pg_relation_size(s.relid) AS heap_bytes,
       c.reltuples >= 0 AS is_known, pg_is_in_recovery() AS is_standby,
       age(c.relfrozenxid) AS xid_age, mxid_age(c.relminmxid) AS mxid_age,
       current_setting('autovacuum_freeze_max_age')::bigint AS freeze_max_age,
       current_setting('autovacuum')::bool AND current_setting('track_counts')::bool AS autovacuum,
       coalesce((SELECT o.option_value::bool FROM pg_options_to_table(c.reloptions) o WHERE o.option_name = 'autovacuum_enabled'), true) AS enabled,
       greatest(s.last_vacuum, s.last_autovacuum) AS vacuumed_at,
       extract(epoch FROM coalesce($1::timestamptz, clock_timestamp())
               - greatest(s.last_vacuum, s.last_autovacuum, pg_postmaster_start_time()))::float8 AS since_s
  FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
 WHERE s.schemaname = 'redrive' ORDER BY s.n_dead_tup DESC;
