-- resume_lane: lift a halt, and have a worker look for the lane's next head. Answers what halted it, where that changed
-- something. The dead letter stays as it is. $1 org, $2 endpoint, $3 lane, $4 now.
WITH before AS MATERIALIZED (
  SELECT l.org_id, l.lane, l.ordering_key, l.halted_at, l.halted_by FROM redrive.lane l
   WHERE l.org_id = $1 AND l.endpoint_id = $2 AND l.lane = $3 AND l.halted_at IS NOT NULL FOR UPDATE),
lifted AS (
  UPDATE redrive.lane l SET halted_at = NULL, halted_by = NULL, resumed_at = coalesce($4::timestamptz, clock_timestamp())
    FROM before b WHERE l.org_id = b.org_id AND l.lane = b.lane
  RETURNING l.org_id, l.lane, b.ordering_key, b.halted_at, b.halted_by),
woken AS (
  INSERT INTO redrive.lane_wake (org_id, lane) SELECT org_id, lane FROM lifted)
SELECT ordering_key, halted_at, halted_by, redrive.tell(ARRAY[''], ARRAY[org_id], ARRAY[NULL]::uuid[])::text AS told FROM lifted;
