-- store_key: keep a key's hash. A key that is there already (the admin key at each start) keeps its row. $9 who, $10 scope.
WITH known AS (SELECT id FROM redrive.api_key WHERE lookup = $6 AND hash = $7 AND org_id = $1 AND revoked_at IS NULL),
made AS (
  INSERT INTO redrive.api_key (org_id, id, name, role, hint, lookup, hash, expires_at, scope)
  SELECT $1, $2, $3, $4, $5, $6, $7, $8, $10 WHERE NOT EXISTS (SELECT FROM known)
  RETURNING id),
audited AS (
  INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, after)
  SELECT $1, redrive.uuid7(), clock_timestamp(), $9, 'key.create', 'key', id, jsonb_build_object('name', $3::text, 'role', $4::text, 'scope', $10::text)
    FROM made)
SELECT id FROM known UNION ALL SELECT id FROM made LIMIT 1;
