-- last_errors: how the last try of each of these tasks failed. $1 orgs, $2 tasks. Tasks that never failed are missing.
SELECT g.id, f.category, f.error_message
  FROM unnest($1::uuid[], $2::uuid[]) AS g(org_id, id)
 CROSS JOIN LATERAL (
    SELECT a.category, a.error_message FROM redrive.attempt a
     WHERE a.org_id = g.org_id AND a.task_id = g.id AND a.result IN ('failed', 'lost')
     ORDER BY a.fence DESC LIMIT 1) f;
