-- count_held: the tasks held for an endpoint, as far as $3 counts. $1 org, $2 endpoint.
SELECT count(*)::int AS n FROM (
  SELECT FROM redrive.task t WHERE t.org_id = $1 AND t.endpoint_id = $2 AND t.open AND NOT t.live LIMIT $3) h;
