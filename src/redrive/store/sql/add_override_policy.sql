-- add_override_policy: terms for single tasks. Retired from the start, so that no list shows it and no name leads to it.
-- $1 org, $2 id, $3 name, $4 spec, $5 time-out.
INSERT INTO redrive.policy (org_id, id, name, spec, timeout_s, retired_at)
VALUES ($1, $2, $3, $4::jsonb, $5, clock_timestamp());
