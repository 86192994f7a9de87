-- endpoints_everywhere: how many endpoints of all orgs are how. What a person or a rule shut comes before what its receiver does. Reads all
-- endpoints: asked at a pace (store/installation.py).
SELECT d.health, count(*)::bigint AS n
  FROM (SELECT CASE WHEN e.disabled_at IS NOT NULL THEN 'disabled' WHEN e.paused_at IS NOT NULL THEN 'paused'
                    WHEN s.breaker <> 'closed' THEN 'open' WHEN s.failing_since IS NOT NULL THEN 'failing' ELSE 'ok' END AS health
          FROM redrive.endpoint e
          LEFT JOIN redrive.endpoint_state s ON s.org_id = e.org_id AND s.endpoint_id = e.id
         WHERE e.deleted_at IS NULL) d
 GROUP BY d.health;
