-- list_paused_endpoints: with how many tasks each of them holds, as far as $3 counts. $1 org, $2 limit, $4 now.
SELECT e.id, e.name, e.paused_at, e.paused_by, e.paused_because, redrive.held_by_endpoint(e.org_id, e.id, $4::timestamptz, $3::bigint) AS held
  FROM redrive.endpoint e
 WHERE e.org_id = $1 AND e.paused_at IS NOT NULL AND e.deleted_at IS NULL
 ORDER BY e.id LIMIT $2;
