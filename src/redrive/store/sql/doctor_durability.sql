-- doctor_durability: settings that decide whether what was committed survives a crash, as sessions of this login get them.
SELECT s.name, s.setting FROM pg_settings s
 WHERE s.name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY s.name;
