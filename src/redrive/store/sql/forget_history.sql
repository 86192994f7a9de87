-- forget_history: how tries went too long ago to matter; answers how many rows went. $1 now, $2 seconds, $3 at most.
WITH old AS MATERIALIZED (
  SELECT h.org_id, h.endpoint_id, h.bucket FROM redrive.endpoint_history h
   WHERE h.bucket < coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8)
   ORDER BY h.bucket LIMIT $3),
gone AS (
  DELETE FROM redrive.endpoint_history h USING old
   WHERE h.org_id = old.org_id AND h.endpoint_id = old.endpoint_id AND h.bucket = old.bucket
  RETURNING 1)
SELECT count(*)::int AS n FROM gone;
