-- doctor_tries: how the tries of the last ten minutes or so went, by endpoint, those with most failures first. $1 now (NULL: the database's clock).
WITH told AS MATERIALIZED (  -- see top_endpoints
  SELECT h.* FROM redrive.endpoint_history h
   WHERE h.bucket > coalesce($1::timestamptz, clock_timestamp()) - interval '10 minutes' ORDER BY h.bucket DESC LIMIT 20000)
SELECT o.name AS org, e.name, sum(h.succeeded)::bigint AS succeeded, sum(h.failed)::bigint AS failed
  FROM told h
  JOIN redrive.org o ON o.org_id = h.org_id
  LEFT JOIN redrive.endpoint e ON e.org_id = h.org_id AND e.id = h.endpoint_id
 GROUP BY o.name, e.name ORDER BY 4 DESC LIMIT 200;
