-- halted_lanes: lanes of an endpoint that are halted. $1 org, $2 endpoint, $3 after (NULL: from the first), $4 limit.
SELECT l.lane FROM redrive.lane l
 WHERE l.org_id = $1 AND l.endpoint_id = $2 AND l.halted_at IS NOT NULL
   AND l.lane >= coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid) AND l.lane IS DISTINCT FROM $3::uuid
 ORDER BY l.lane LIMIT $4;
