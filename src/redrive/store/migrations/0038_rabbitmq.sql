-- Messages of a broker that died there: each is a dead letter, and here is what it was in the broker. And endpoints that are an exchange.

-- Texts are as people can read them; what goes back to the broker is in origin and properties, whatever characters it holds. JSON in texts:
-- the type of PostgreSQL takes neither \u0000 nor half of a pair.
CREATE TABLE redrive.broker_message (
  org_id        uuid NOT NULL,
  task_id       uuid NOT NULL,
  source        text NOT NULL,      -- the dead-letter queue that it was taken from
  queue         text NOT NULL,      -- that it died in
  exchange      text NOT NULL,      -- that it was published to
  routing_key   text NOT NULL,
  origin        text NOT NULL,      -- JSON: exchange, routing_key and queue, every character kept
  message_id    text,
  service       text,               -- that gave it up
  properties    text NOT NULL,      -- JSON, its headers among them
  deaths        text,               -- JSON: what the broker wrote down of them (x-death)
  details       text,               -- JSON: what the service said besides
  retries       integer NOT NULL CHECK (retries >= 0),  -- made before it died: tries that no attempt tells of
  redriven_from uuid,               -- the dead letter that it was before it was redriven and died again
  replays       integer NOT NULL DEFAULT 0,             -- of that, by then
  collected_at  timestamptz NOT NULL,
  PRIMARY KEY (org_id, task_id),
  FOREIGN KEY (org_id, task_id) REFERENCES redrive.dead_letter ON DELETE CASCADE
);
CALL redrive.secure('broker_message');
GRANT SELECT ON redrive.broker_message TO redrive_app;
GRANT SELECT, INSERT ON redrive.broker_message TO redrive_engine;
-- The archive keeps them with their events.
GRANT SELECT ON redrive.broker_message TO redrive_janitor;
CREATE POLICY janitor_select ON redrive.broker_message FOR SELECT TO redrive_janitor USING (true);

-- Queues as collectors last saw them. As many as note_queues.sql allows.
CREATE TABLE redrive.broker_queue (
  org_id       uuid NOT NULL,
  queue        text NOT NULL,
  is_source    boolean NOT NULL,          -- it is collected; else messages died in it
  problem      text,                      -- NULL: it is consumed
  messages     bigint,                    -- that wait in it; NULL: not known
  consumers    bigint,
  collected    bigint NOT NULL DEFAULT 0, -- in all
  duplicates   bigint NOT NULL DEFAULT 0,
  seen_at      timestamptz NOT NULL,
  collected_at timestamptz,               -- the last time that there was something
  PRIMARY KEY (org_id, queue)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
CALL redrive.secure('broker_queue');
GRANT SELECT ON redrive.broker_queue TO redrive_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON redrive.broker_queue TO redrive_engine;

-- An endpoint may be an exchange of the broker. RabbitMQ's names have at most 255 bytes; its default exchange has none.
ALTER TABLE redrive.endpoint
  ADD COLUMN exchange    text CHECK (octet_length(exchange) <= 255),
  ADD COLUMN routing_key text CHECK (octet_length(routing_key) <= 255),  -- NULL: each event's type is its key
  ADD CHECK ((kind = 'rabbitmq') = (exchange IS NOT NULL)),
  ADD CHECK (routing_key IS NULL OR exchange IS NOT NULL);

-- config_of: an endpoint as a dead letter remembers it. No secret, no header value, no query of the URL.
CREATE OR REPLACE FUNCTION redrive.config_of(p_org uuid, p_endpoint uuid) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object('id', e.id, 'name', e.name, 'kind', e.kind, 'url', redrive.redact_url(e.url),
                            'event_types', e.event_types, 'policy', e.policy, 'ordered', e.ordered,
                            'external_system', e.external_system, 'timeout_s', e.timeout_s,
                            'max_in_flight', e.max_in_flight, 'rate_per_s', e.rate_per_s,
                            'disabled', e.disabled_at IS NOT NULL, 'deleted', e.deleted_at IS NOT NULL)
         || CASE e.kind WHEN 'rabbitmq' THEN jsonb_build_object('exchange', e.exchange, 'routing_key', e.routing_key) ELSE '{}' END
    FROM redrive.endpoint e WHERE e.org_id = p_org AND e.id = p_endpoint
$$;

-- task_goes_at: as in 0011, but that what failed elsewhere, long before it came here, is kept from when it came.
CREATE OR REPLACE FUNCTION redrive.task_goes_at(
  p_state text, p_reason text, p_received_at timestamptz, p_updated_at timestamptz, p_last_failed_at timestamptz, p_spec jsonb)
RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_state = 'succeeded' THEN
                p_updated_at + make_interval(secs => (p_spec -> 'retention' ->> 'delivered_s')::float8)
              WHEN p_state = 'dead' AND p_reason = 'permanent' THEN
                greatest(coalesce(p_last_failed_at, p_updated_at), p_received_at)
                + make_interval(secs => (p_spec -> 'retention' ->> 'failed_s')::float8)
              WHEN p_state = 'dead' THEN
                p_received_at + make_interval(secs => (p_spec -> 'retention' ->> 'dead_s')::float8) END
$$;

-- note_deaths: as in 0036, but that a message of a broker has neither an endpoint nor a handler: its type is the queue that it died in.
CREATE OR REPLACE FUNCTION redrive.note_deaths(p_orgs uuid[], p_tasks uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  g       record;
  v_room  integer;
BEGIN
  FOR g IN
    SELECT a.org_id, max(a.at) AS at, count(*)::integer AS n, array_agg(a.task_id ORDER BY a.turn, a.task_id) AS tasks
      FROM (SELECT d.org_id, d.task_id, d.created_at AS at,
                   row_number() OVER (PARTITION BY d.org_id, d.fingerprint ORDER BY d.task_id) AS turn
              FROM unnest(p_orgs, p_tasks) AS r(org_id, task_id)
              JOIN redrive.dead_letter d ON d.org_id = r.org_id AND d.task_id = r.task_id
              JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
              JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
             WHERE t.is_test IS NOT TRUE AND redrive.announces(d.reason, p.spec)) a
     GROUP BY a.org_id ORDER BY a.org_id
  LOOP
    v_room := greatest(redrive.notice_room(g.org_id, 'dead_letter', g.at), 0);
    INSERT INTO redrive.notice (org_id, id, at, kind, severity, subject_kind, subject_id, text, facts)
    SELECT d.org_id, redrive.uuid7(), d.created_at, 'dead_letter', 'error', 'dead_letter', d.task_id,
           format('%s is a dead letter: %s. The error: %s Retry, resolve or ignore it once its cause is dealt with.',
                  CASE WHEN d.kind = 'rabbitmq' AND d.endpoint_id IS NULL THEN
                         'A message of the queue "' || left(d.event_type, 200) || '"'
                       WHEN d.kind = 'step' THEN left(d.event_type, 200) || ' for the workflow "' || (d.config ->> 'workflow') || '"'
                       ELSE left(d.event_type, 200) || ' for ' || coalesce('endpoint "' || (d.config ->> 'name') || '"', 'its handler') END,
                  CASE d.reason WHEN 'permanent' THEN 'another try would not help'
                                WHEN 'exhausted' THEN 'its retries are used up'
                                ELSE 'it is older than its policy allows' END,
                  rtrim(left(d.error_message, 300), '. ') || '.'),
           jsonb_build_object('task_id', d.task_id, 'event_id', d.event_id, 'event_type', left(d.event_type, 200),
                              'external_system', left(d.external_system, 200), 'endpoint_id', d.endpoint_id,
                              'endpoint', CASE d.kind WHEN 'step' THEN d.config -> 'endpoint' ->> 'name' ELSE d.config ->> 'name' END,
                              'reason', d.reason, 'category', d.category, 'fingerprint', d.fingerprint, 'generation', d.generation)
      FROM unnest(g.tasks[1:v_room]) AS r(task_id)
      JOIN redrive.dead_letter d ON d.org_id = g.org_id AND d.task_id = r.task_id;
    IF g.n > v_room THEN
      PERFORM redrive.note_more(g.org_id, 'dead_letter', 'error', g.at, g.n - v_room);
    END IF;
  END LOOP;
END $$;
