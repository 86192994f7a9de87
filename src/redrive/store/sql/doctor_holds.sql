-- doctor_holds: what holds tasks, and how many as far as $1 counts by $2: the installation, orgs and endpoints that are paused or disabled, the most first. `by_engine`:
-- Redrive disabled it itself, which it audits at the very moment (see disable_endpoint.sql).
SELECT 'installation' AS scope, NULL::text AS org, NULL::text AS name, i.paused_at AS since, i.paused_by AS by, i.paused_because AS because,
       false AS is_disabled, false AS by_engine, (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c WHERE c.name = 'task.held') AS held
  FROM redrive.installation i WHERE i.paused_at IS NOT NULL
UNION ALL
SELECT 'org', o.name, o.name, o.paused_at, o.paused_by, o.paused_because, false, false,
       (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c WHERE c.org_id = o.org_id AND c.name = 'task.held')
  FROM redrive.org o WHERE o.paused_at IS NOT NULL
UNION ALL
SELECT 'endpoint', o.name, e.name, coalesce(e.disabled_at, e.paused_at), CASE WHEN e.disabled_at IS NULL THEN e.paused_by END,
       CASE WHEN e.disabled_at IS NULL THEN e.paused_because ELSE e.disabled_reason END, e.disabled_at IS NOT NULL,
       EXISTS (SELECT FROM redrive.audit a WHERE a.org_id = e.org_id AND a.subject_id = e.id AND a.actor = 'engine' AND a.at = e.disabled_at), h.n
  FROM redrive.endpoint e JOIN redrive.org o ON o.org_id = e.org_id
 CROSS JOIN LATERAL (SELECT redrive.held_by_endpoint(e.org_id, e.id, $2::timestamptz, $1) AS n) h
 WHERE e.deleted_at IS NULL AND (e.disabled_at IS NOT NULL OR e.paused_at IS NOT NULL)
 ORDER BY held DESC, since LIMIT 50;
