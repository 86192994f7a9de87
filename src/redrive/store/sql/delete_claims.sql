-- delete_claims: idempotency keys that are no longer honoured, oldest first. $1 org, $2 now, $3 seconds, $4 limit.
WITH old AS MATERIALIZED (
  SELECT i.scope, i.key FROM redrive.idempotency i
   WHERE i.org_id = $1 AND i.created_at < $2::timestamptz - make_interval(secs => $3::float8)
   ORDER BY i.created_at LIMIT $4),
gone AS (
  DELETE FROM redrive.idempotency i USING old WHERE i.org_id = $1 AND i.scope = old.scope AND i.key = old.key RETURNING 1)
SELECT count(*) AS n FROM gone;
