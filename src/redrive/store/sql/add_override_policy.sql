-- add_override_policy: terms for single tasks. Retired from the start, so that no list shows it and no name leads to it. The same
-- terms are one row, however often they are asked for. $1 org, $2 name, $3 spec, $4 time-out.
WITH made AS (
  INSERT INTO redrive.policy (org_id, id, name, spec, timeout_s, retired_at)
  VALUES ($1, redrive.id_of_key($1, 'override', $3), $2, $3::jsonb, $4, clock_timestamp())
  ON CONFLICT (org_id, id) DO NOTHING)
SELECT redrive.id_of_key($1, 'override', $3) AS id;
