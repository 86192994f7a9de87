-- put_policy: retire the version in force, if there is one, and add the new one. $1 org, $2 name, $3 id, $4 spec, $5 time-out,
-- $6 event types, $7 the same as LIKE patterns, $8 whether it is the org's default.
WITH retired AS (
  UPDATE redrive.policy SET retired_at = clock_timestamp()
   WHERE org_id = $1 AND name = $2 AND retired_at IS NULL RETURNING preset)
INSERT INTO redrive.policy (org_id, id, name, spec, timeout_s, preset, event_types, type_patterns, is_default)
SELECT $1, $3, $2, $4::jsonb, $5, coalesce((SELECT bool_or(preset) FROM retired), false), $6::text[], $7::text[], $8
RETURNING *;
