-- doctor_slots: replication slots that keep vacuum or the write-ahead log from being cleared. Since when nobody uses one, PostgreSQL 17 and newer tell.
SELECT s.slot_name::text AS name, s.slot_type AS type, s.active, s.wal_status, greatest(age(s.xmin), age(s.catalog_xmin)) AS xids,
       to_jsonb(s) ->> 'inactive_since' AS inactive_since
  FROM pg_replication_slots s
 WHERE NOT s.active OR greatest(age(s.xmin), age(s.catalog_xmin)) > $1::int
 ORDER BY s.slot_name LIMIT 20;
