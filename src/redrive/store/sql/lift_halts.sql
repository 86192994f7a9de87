-- lift_halts: halts whose cause goes away, with the dead letters of some tasks or with an endpoint. A worker looks for the lanes' next
-- heads. $1 org, $2 tasks, $3 endpoint (NULL: none).
WITH chosen AS MATERIALIZED (
  SELECT l.lane FROM redrive.lane l WHERE l.org_id = $1 AND l.halted_by = ANY ($2::uuid[])
   UNION
  SELECT l.lane FROM redrive.lane l WHERE l.org_id = $1 AND l.endpoint_id = $3::uuid AND l.halted_at IS NOT NULL),
lifted AS (
  UPDATE redrive.lane l SET halted_at = NULL, halted_by = NULL, resumed_at = clock_timestamp()
    FROM chosen c WHERE l.org_id = $1 AND l.lane = c.lane AND l.halted_at IS NOT NULL
  RETURNING l.org_id, l.lane),
woken AS (
  INSERT INTO redrive.lane_wake (org_id, lane) SELECT org_id, lane FROM lifted RETURNING 1)
SELECT redrive.tell(ARRAY[''], ARRAY[$1], ARRAY[NULL]::uuid[])::text AS told FROM woken LIMIT 1;
