-- ensure_org: the org of this name, made where absent. $1 name, $2 id for a new one.
WITH made AS (
  INSERT INTO redrive.org (org_id, name) VALUES ($2, $1) ON CONFLICT (name) DO UPDATE SET name = excluded.name
  RETURNING org_id)
SELECT org_id FROM made;
