-- check_task_terms: the policy that a task was accepted under, and its endpoint, exist (deleted endpoints keep their row).
SELECT t.org_id, t.id, CASE WHEN p.id IS NULL THEN format('policy %s does not exist', t.policy_id)
                            ELSE format('endpoint %s does not exist', t.endpoint_id) END AS detail
  FROM redrive.task t
  LEFT JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
  LEFT JOIN redrive.endpoint e ON e.org_id = t.org_id AND e.id = t.endpoint_id
 WHERE p.id IS NULL OR (t.endpoint_id IS NOT NULL AND e.id IS NULL)
 LIMIT 11;
