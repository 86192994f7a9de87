-- installation_facts: what is known of the installation at once. $1 now (NULL: the database's clock), $2 seconds after which a worker that
-- was not heard of is not counted.
SELECT (SELECT count(*) FROM redrive.worker w
         WHERE w.seen_at > coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8))::bigint AS workers,
       (SELECT m.version FROM redrive.schema_migration m ORDER BY m.version DESC LIMIT 1) AS schema_version,
       coalesce((SELECT extract(epoch FROM clock_timestamp() - t.since) FROM redrive.open_transactions(clock_timestamp(), 1) t), 0)::float8 AS age_s,
       -- How many transactions back a row must be dead before vacuum may remove it. Who holds it up is seen whatever their login is: sessions of this
       -- database, and those of none (a standby that tells what it reads), but no vacuum, which holds up no other; transactions that were prepared
       -- here; replication slots, whichever database they are of.
       greatest((SELECT max(greatest(age(a.backend_xmin), age(a.backend_xid))) FROM pg_stat_activity a
                  WHERE a.pid <> pg_backend_pid() AND (a.datname = current_database() OR a.datname IS NULL)
                    AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid IN (a.pid, a.leader_pid))),
                (SELECT max(age(p.transaction)) FROM pg_prepared_xacts p WHERE p.database = current_database()),
                (SELECT max(age(r.xmin)) FROM pg_replication_slots r), 0)::bigint AS xmin_age;
