-- forget_lanes: lanes that were halted once, and in which nothing is open any more; answers how many went. $1 at most. One that halts at
-- this moment is looked at again when that is done, and stays. (Each is asked for by itself: there are few, and many tasks.)
WITH idle AS MATERIALIZED (
  SELECT l.org_id, l.lane FROM redrive.lane l
   WHERE l.halted_at IS NULL
     AND (SELECT t.id FROM redrive.task t
           WHERE t.org_id = l.org_id AND t.lane = l.lane AND t.lane IS NOT NULL AND t.open AND t.behind IS NULL LIMIT 1) IS NULL
     AND (SELECT t.id FROM redrive.task t WHERE t.org_id = l.org_id AND t.lane = l.lane AND t.behind AND t.open LIMIT 1) IS NULL
   LIMIT $1),
gone AS (
  DELETE FROM redrive.lane l USING idle i WHERE l.org_id = i.org_id AND l.lane = i.lane AND l.halted_at IS NULL RETURNING 1)
SELECT count(*)::int AS n FROM gone;
