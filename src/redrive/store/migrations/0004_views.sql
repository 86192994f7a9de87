-- What people see of a task, in one place: the retry queue, the dead letters and the logs all read it.
CREATE VIEW redrive.task_entry WITH (security_invoker = true) AS
SELECT t.org_id, t.id, t.event_id, t.kind, t.queue, t.event_type, t.external_system, t.endpoint_id, t.state, t.attempts,
       t.generation, t.expedited, t.due_at, t.first_failed_at, t.last_failed_at, t.updated_at, t.reason, t.fence,
       t.worker_id, t.leased_at, t.open, p.name AS policy, p.spec AS policy_spec, e.correlation_id,
       e.received_at AS created_at, a.error_message, a.error_stack, a.category
  FROM redrive.task t
  JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
  JOIN redrive.event e ON e.org_id = t.org_id AND e.id = t.event_id
  LEFT JOIN LATERAL (
    SELECT f.error_message, f.error_stack, f.category FROM redrive.attempt f
     WHERE f.org_id = t.org_id AND f.task_id = t.id AND f.result IN ('failed', 'lost')
     ORDER BY f.fence DESC LIMIT 1) a ON t.first_failed_at IS NOT NULL;
GRANT SELECT ON redrive.task_entry TO redrive_app, redrive_engine;

-- An event as people see it, without its body: where it stands is what its tasks say.
CREATE VIEW redrive.event_entry WITH (security_invoker = true) AS
SELECT e.org_id, e.id, e.event_type, e.tasks, e.endpoint_id, e.handler, e.policy, e.external_system, e.ordering_key,
       e.correlation_id, e.occurred_at, e.received_at, e.content_type, s.status, s.open_tasks, s.dead_tasks,
       CASE s.status WHEN 'delivered' THEN s.ended_at END AS delivered_at,
       CASE s.status WHEN 'failed' THEN s.ended_at END AS failed_at
  FROM redrive.event e
 CROSS JOIN LATERAL (
   SELECT CASE WHEN count(*) = 0 THEN 'received' WHEN bool_or(t.open) THEN 'queued'
               WHEN bool_or(t.state = 'dead') THEN 'failed' ELSE 'delivered' END AS status,
          count(*) FILTER (WHERE t.open) AS open_tasks, count(*) FILTER (WHERE t.state = 'dead') AS dead_tasks,
          max(t.updated_at) AS ended_at
     FROM redrive.task t WHERE t.org_id = e.org_id AND t.event_id = e.id) s;
GRANT SELECT ON redrive.event_entry TO redrive_app, redrive_engine;
