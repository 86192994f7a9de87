-- alert_endpoints: endpoints of these orgs whose breaker is not closed, or that Redrive disabled; and those that fire already, as they are now:
-- what is not answered of them was deleted. $1 orgs, $2 limit, then by endpoint that fires: $3 org, $4 id.
SELECT e.org_id, e.id, e.name, coalesce(s.breaker, 'closed') AS breaker, s.breaker_since, s.breaker_reason,
       CASE WHEN e.disabled_by_engine THEN e.disabled_at END AS disabled_at,
       CASE WHEN e.disabled_by_engine THEN e.disabled_reason END AS disabled_reason, e.disabled_at IS NOT NULL AS is_disabled
  FROM (SELECT * FROM unnest($3::uuid[], $4::uuid[]) AS f(org_id, endpoint_id)
        UNION
        (SELECT s.org_id, s.endpoint_id
           FROM redrive.endpoint_state s
           JOIN redrive.endpoint e ON e.org_id = s.org_id AND e.id = s.endpoint_id AND e.deleted_at IS NULL
          WHERE s.org_id = ANY($1::uuid[]) AND s.breaker <> 'closed' LIMIT $2)
        UNION
        (SELECT e.org_id, e.id FROM redrive.endpoint e
          WHERE e.org_id = ANY($1::uuid[]) AND e.disabled_by_engine AND e.deleted_at IS NULL LIMIT $2)) f
  JOIN redrive.endpoint e ON e.org_id = f.org_id AND e.id = f.endpoint_id AND e.deleted_at IS NULL
  LEFT JOIN redrive.endpoint_state s ON s.org_id = f.org_id AND s.endpoint_id = f.endpoint_id;
