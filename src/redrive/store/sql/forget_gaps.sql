-- forget_gaps: deaths in lanes to which nothing came for so long that nobody waits to hear of them; answers how many went.
-- $1 now, $2 seconds, $3 at most.
WITH old AS MATERIALIZED (
  SELECT g.org_id, g.lane, g.place FROM redrive.lane_gap g
   WHERE g.died_at < coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8)
   ORDER BY g.died_at LIMIT $3),
gone AS (
  DELETE FROM redrive.lane_gap g USING old WHERE g.org_id = old.org_id AND g.lane = old.lane AND g.place = old.place RETURNING 1)
SELECT count(*)::int AS n FROM gone;
