-- doctor_invalid_indexes: indexes that were never finished (CREATE INDEX CONCURRENTLY that was broken off): written, never read. One that is
-- being built at this moment is not meant.
SELECT i.relname::text AS name, t.relname::text AS on_what
  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
 WHERE i.relnamespace = 'redrive'::regnamespace AND NOT (x.indisvalid AND x.indisready)
   AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = x.indexrelid)
 ORDER BY 1;
