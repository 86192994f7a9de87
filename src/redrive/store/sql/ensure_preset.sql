-- ensure_preset: seed a preset. An edited one is left alone, unless the settings name it ($6): then they win, but for which
-- events it is. One that the settings named before and name no more goes back to the preset. One that was deleted stays away:
-- it is seeded only where there never was one of its name. $1 org, $2 name, $3 new id, $4 spec, $5 time-out.
WITH retired AS (
  UPDATE redrive.policy SET retired_at = clock_timestamp()
   WHERE org_id = $1 AND name = $2 AND retired_at IS NULL AND ($6 OR from_settings) AND (spec <> $4::jsonb OR from_settings <> $6)
  RETURNING event_types, type_patterns, is_default),
seeded AS (
  SELECT * FROM retired
   UNION ALL
  SELECT '{}'::text[], '{}'::text[], false WHERE NOT EXISTS (SELECT FROM redrive.policy WHERE org_id = $1 AND name = $2))
INSERT INTO redrive.policy (org_id, id, name, spec, timeout_s, preset, event_types, type_patterns, is_default, from_settings)
SELECT $1, $3, $2, $4::jsonb, $5, true, event_types, type_patterns, is_default, $6 FROM seeded;
