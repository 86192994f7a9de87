-- What people see of a task, in one place: the retry queue, the dead letters and the logs all read it.
CREATE VIEW redrive.task_entry WITH (security_invoker = true) AS
SELECT t.org_id, t.id, t.event_id, t.kind, t.queue, t.event_type, t.external_system, t.endpoint_id, t.state, t.attempts,
       t.generation, t.expedited, t.due_at, t.first_failed_at, t.last_failed_at, t.updated_at, t.reason, t.fence,
       t.worker_id, t.leased_at, p.name AS policy, p.spec AS policy_spec, e.correlation_id,
       e.received_at AS created_at, a.error_message, a.error_stack, a.category
  FROM redrive.task t
  JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
  JOIN redrive.event e ON e.org_id = t.org_id AND e.id = t.event_id
  LEFT JOIN LATERAL (
    SELECT f.error_message, f.error_stack, f.category FROM redrive.attempt f
     WHERE f.org_id = t.org_id AND f.task_id = t.id AND f.result IN ('failed', 'lost')
     ORDER BY f.fence DESC LIMIT 1) a ON t.first_failed_at IS NOT NULL;
GRANT SELECT ON redrive.task_entry TO redrive_app, redrive_engine;
