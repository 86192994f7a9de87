-- list_paused_endpoints: with how many tasks each of them holds, as far as $3 counts. $1 org, $2 limit.
SELECT e.id, e.name, e.paused_at, e.paused_by, e.paused_because, (
         SELECT count(*) FROM (
           SELECT FROM redrive.task t
            WHERE t.org_id = $1 AND t.endpoint_id = e.id AND t.open AND NOT t.live LIMIT $3) h) AS held
  FROM redrive.endpoint e
 WHERE e.org_id = $1 AND e.paused_at IS NOT NULL AND e.deleted_at IS NULL
 ORDER BY e.id LIMIT $2;
