-- judge_items: what must be known of items' tasks to act on them. A statement of its own: it sees what was committed while
-- the tasks were being locked. $1 org, $2 operation, $3 the last item before, $4 the last item.
WITH item AS MATERIALIZED (
  SELECT i.org_id, i.n, i.task_id, i.lane_order FROM redrive.operation_item i
   WHERE i.org_id = $1 AND i.operation_id = $2 AND i.n > $3 AND i.n <= $4 ORDER BY i.n)
SELECT item.n, item.task_id, item.lane_order, t.event_id, t.state, t.behind, t.attempts, t.fence, t.kind, t.queue, t.endpoint_id, t.run_id, t.step, p.spec,
       t.run_id IS NOT NULL AND EXISTS (
         SELECT FROM redrive.task o WHERE o.org_id = t.org_id AND o.run_id = t.run_id AND o.open) AS run_is_under_way,
       d.state AS letter_state, d.created_at AS died_at, a.error_message, a.category,
       (i.paused_at IS NOT NULL OR o.paused_at IS NOT NULL OR e.paused_at IS NOT NULL OR e.disabled_at IS NOT NULL) AS is_shut
  FROM item
  LEFT JOIN redrive.task t ON t.org_id = item.org_id AND t.id = item.task_id
  LEFT JOIN redrive.installation i ON i.singleton
  LEFT JOIN redrive.org o ON o.org_id = item.org_id
  LEFT JOIN redrive.endpoint e ON e.org_id = t.org_id AND e.id = t.endpoint_id AND e.deleted_at IS NULL
  LEFT JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
  LEFT JOIN redrive.dead_letter d ON d.org_id = item.org_id AND d.task_id = item.task_id
  LEFT JOIN LATERAL (
    SELECT f.error_message, f.category FROM redrive.attempt f
     WHERE f.org_id = item.org_id AND f.task_id = item.task_id AND f.result IN ('failed', 'lost')
     ORDER BY f.fence DESC LIMIT 1) a ON t.first_failed_at IS NOT NULL
 ORDER BY item.n;
