-- doctor_migrations: what was applied, in order. In a database without a Redrive there is no such table.
SELECT m.version, m.name, m.checksum FROM redrive.schema_migration m ORDER BY m.version;
