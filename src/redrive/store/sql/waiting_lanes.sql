-- waiting_lanes: lanes of an endpoint in which something waits, found by stepping from one to the next: a long lane costs as
-- much as a short one. $1 org, $2 endpoint, $3 after (NULL: from the first), $4 limit.
WITH RECURSIVE step AS (
  (SELECT t.lane, 1 AS n FROM redrive.task t
    WHERE t.org_id = $1 AND t.endpoint_id = $2 AND t.behind AND t.open
      AND t.lane >= coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid) AND t.lane IS DISTINCT FROM $3::uuid
    ORDER BY t.lane LIMIT 1)
  UNION ALL
  SELECT (SELECT t.lane FROM redrive.task t
           WHERE t.org_id = $1 AND t.endpoint_id = $2 AND t.behind AND t.open AND t.lane > step.lane
           ORDER BY t.lane LIMIT 1), step.n + 1
    FROM step WHERE step.lane IS NOT NULL AND step.n < $4)
SELECT lane FROM step WHERE lane IS NOT NULL;
