-- Events know who handed them in, and the installation has a default policy. Locked in the order in which programs do.

ALTER TABLE redrive.installation ADD COLUMN default_policy text; -- set at start-up from REDRIVE_DEFAULT_POLICY; NULL: integration
ALTER TABLE redrive.policy ADD COLUMN from_settings boolean NOT NULL DEFAULT false;  -- seeded from an environment variable
ALTER TABLE redrive.event ADD COLUMN submitted_by text;          -- key:<id>, user:<id>, …; NULL: Redrive itself, or a program with the database

-- The inbox is read in the order of the events' timestamps, ties by arrival. The index has no row for what is delivered.
CREATE INDEX event_in_inbox_by_time ON redrive.event (org_id, occurred_at, received_at, id) WHERE tasks = 0 AND acked_at IS NULL;

CREATE OR REPLACE VIEW redrive.event_entry WITH (security_invoker = true) AS
SELECT e.org_id, e.id, e.event_type, e.tasks, e.endpoint_id, e.handler, e.policy, e.external_system, e.ordering_key,
       e.correlation_id, e.occurred_at, e.received_at, e.content_type, s.status, s.open_tasks, s.dead_tasks,
       CASE s.status WHEN 'delivered' THEN coalesce(e.acked_at, s.ended_at) END AS delivered_at,
       CASE s.status WHEN 'failed' THEN s.ended_at END AS failed_at, e.acked_at, e.acked_by,
       e.submitted_by
  FROM redrive.event e
 CROSS JOIN LATERAL (
   SELECT CASE WHEN count(*) = 0 THEN CASE WHEN e.acked_at IS NULL THEN 'received' ELSE 'delivered' END
               WHEN bool_or(t.open) THEN 'queued'
               WHEN bool_or(t.state = 'dead') THEN 'failed' ELSE 'delivered' END AS status,
          count(*) FILTER (WHERE t.open) AS open_tasks, count(*) FILTER (WHERE t.state = 'dead') AS dead_tasks,
          max(t.updated_at) AS ended_at
     FROM redrive.task t WHERE t.org_id = e.org_id AND t.event_id = e.id) s;
