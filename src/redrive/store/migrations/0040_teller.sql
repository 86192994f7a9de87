-- Metrics of the installation are told by one API server at a time, the teller, so that sums over servers are right.
-- The row is a lease: renewed every few seconds, taken over when it has run out, let go by a server that stops.
CREATE TABLE redrive.teller (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  server    uuid,          -- NULL: nobody
  name      text,          -- of it, for people: host and process
  until     timestamptz,
  CHECK ((server IS NULL) = (until IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
GRANT SELECT, INSERT, UPDATE ON redrive.teller TO redrive_engine;

-- oldest_transaction: for how many seconds the oldest one has been open, and how many transactions back a row must be dead before vacuum
-- may remove it. As the owner of the schema, under whose login the sessions of Redrive and of programs beside it run: the engine's role
-- would see nothing of them. Those of other accounts are seen where the owner has pg_read_all_stats.
CREATE FUNCTION redrive.oldest_transaction(OUT age_s double precision, OUT xmin_age bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
  SELECT coalesce(greatest(
           (SELECT max(extract(epoch FROM clock_timestamp() - a.xact_start)) FROM pg_stat_activity a
             WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'),
           (SELECT max(extract(epoch FROM clock_timestamp() - p.prepared)) FROM pg_prepared_xacts p
             WHERE p.database = current_database()), 0), 0)::double precision,
         coalesce(greatest(
           (SELECT max(greatest(age(a.backend_xmin), age(a.backend_xid))) FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid()),
           (SELECT max(age(p.transaction)) FROM pg_prepared_xacts p),
           (SELECT max(age(r.xmin)) FROM pg_replication_slots r), 0), 0)::bigint
$$;
REVOKE ALL ON FUNCTION redrive.oldest_transaction FROM PUBLIC;
GRANT EXECUTE ON FUNCTION redrive.oldest_transaction TO redrive_engine;
GRANT SELECT ON redrive.schema_migration TO redrive_engine;
