-- doctor_hidden: sessions in this database of which PostgreSQL hides from this login what they do.
SELECT count(*)::int AS n FROM pg_stat_activity a WHERE a.datname = current_database() AND a.usesysid IS NOT NULL AND a.backend_type IS NULL;
