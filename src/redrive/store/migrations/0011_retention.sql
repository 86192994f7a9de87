-- An event may be acknowledged, and what is finished may be removed: by a person, one event at a time, or by the janitor,
-- when the policies say so. Nothing that is open can be removed by anyone.

-- Who removes by policy. It owns nothing, and sees of every org only what it needs for that.
DO $$
BEGIN
  -- As in 0001: the role belongs to the cluster, and becoming it is a step of its own.
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'redrive_janitor') THEN
    CREATE ROLE redrive_janitor NOLOGIN;
  END IF;
  IF current_setting('server_version_num')::int >= 160000 THEN
    IF NOT pg_has_role(current_user, 'redrive_janitor', 'SET') THEN
      EXECUTE 'GRANT redrive_janitor TO CURRENT_USER WITH INHERIT FALSE';
    END IF;
  ELSIF NOT pg_has_role(current_user, 'redrive_janitor', 'MEMBER') THEN
    GRANT redrive_janitor TO CURRENT_USER;
  END IF;
END $$;

-- Acknowledging: the one thing that ever changes an event, and only one that nobody else delivers.
ALTER TABLE redrive.event ADD COLUMN acked_at timestamptz, ADD COLUMN acked_by text;
GRANT UPDATE (acked_at, acked_by) ON redrive.event TO redrive_app;

DROP INDEX redrive.event_in_inbox;
CREATE INDEX event_in_inbox ON redrive.event (org_id, received_at, id) WHERE tasks = 0 AND acked_at IS NULL;

CREATE FUNCTION redrive.guard_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.tasks > 0 OR OLD.acked_at IS NOT NULL OR NEW.acked_at IS NULL OR NEW.acked_by IS NULL THEN
    RAISE EXCEPTION 'illegal change of event %: only one that waits in the inbox is acknowledged, once', OLD.id
      USING ERRCODE = 'check_violation';
  END IF;
  OLD.acked_at := NEW.acked_at;
  OLD.acked_by := NEW.acked_by;
  IF OLD IS DISTINCT FROM NEW THEN  -- whatever columns there are
    RAISE EXCEPTION 'illegal change of event %: it is what was handed in', NEW.id USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER event_change BEFORE UPDATE ON redrive.event FOR EACH ROW EXECUTE FUNCTION redrive.guard_event();

CREATE FUNCTION redrive.refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'task % is %: it cannot be removed', OLD.id, OLD.state USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER task_removal BEFORE DELETE ON redrive.task FOR EACH ROW WHEN (OLD.open)
  EXECUTE FUNCTION redrive.refuse_removal();

CREATE OR REPLACE VIEW redrive.event_entry WITH (security_invoker = true) AS
SELECT e.org_id, e.id, e.event_type, e.tasks, e.endpoint_id, e.handler, e.policy, e.external_system, e.ordering_key,
       e.correlation_id, e.occurred_at, e.received_at, e.content_type, s.status, s.open_tasks, s.dead_tasks,
       CASE s.status WHEN 'delivered' THEN coalesce(e.acked_at, s.ended_at) END AS delivered_at,
       CASE s.status WHEN 'failed' THEN s.ended_at END AS failed_at, e.acked_at, e.acked_by
  FROM redrive.event e
 CROSS JOIN LATERAL (
   SELECT CASE WHEN count(*) = 0 THEN CASE WHEN e.acked_at IS NULL THEN 'received' ELSE 'delivered' END
               WHEN bool_or(t.open) THEN 'queued'
               WHEN bool_or(t.state = 'dead') THEN 'failed' ELSE 'delivered' END AS status,
          count(*) FILTER (WHERE t.open) AS open_tasks, count(*) FILTER (WHERE t.state = 'dead') AS dead_tasks,
          max(t.updated_at) AS ended_at
     FROM redrive.task t WHERE t.org_id = e.org_id AND t.event_id = e.id) s;

-- Counters follow, as in 0002: `event.acked` beside `event.inbox` (those that wait) and `event.routed`, and `event.bytes`, what
-- the payloads of an org take. (The length of a payload is known without reading it.)
DO $$
DECLARE
  t record;
  upsert CONSTANT text := 'INSERT INTO redrive.counter AS c (org_id, name, shard, n)
    SELECT org_id, name, redrive.own_shard(), sum(n) FROM (%s) d
     GROUP BY org_id, name HAVING sum(n) <> 0 ORDER BY org_id, name
    ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n';
  always CONSTANT text := 'BEGIN %s; RETURN NULL; END';
  seldom CONSTANT text := 'BEGIN IF EXISTS (SELECT FROM removed) THEN %s; END IF; RETURN NULL; END';
  events CONSTANT text := $q$SELECT org_id, CASE WHEN tasks > 0 THEN 'event.routed' WHEN acked_at IS NULL THEN 'event.inbox'
    ELSE 'event.acked' END AS name, %1$s AS n FROM %2$s$q$;
  bytes CONSTANT text := $q$ UNION ALL SELECT org_id, 'event.bytes', %1$s * octet_length(body) FROM %2$s$q$;
BEGIN
  EXECUTE format('CREATE OR REPLACE FUNCTION redrive.count_added_event() RETURNS trigger LANGUAGE plpgsql AS %L',
    format(always, format(upsert, format(events || bytes, '1', 'added'))));
  EXECUTE format('CREATE FUNCTION redrive.count_moved_event() RETURNS trigger LANGUAGE plpgsql AS %L',
    format(seldom, format(upsert, format(events, '-1', 'removed') || ' UNION ALL ' || format(events, '1', 'added'))));
  CREATE TRIGGER count_moved AFTER UPDATE ON redrive.event REFERENCING OLD TABLE AS removed NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_moved_event();
  FOR t IN SELECT * FROM (VALUES
      ('event', events || bytes),
      ('task', $q$SELECT org_id, 'task.' || state AS name, %1$s AS n FROM %2$s
        UNION ALL SELECT org_id, 'retrying', %1$s FROM %2$s WHERE attempts > 0 AND open$q$),
      ('dead_letter', $q$SELECT org_id, 'dead.' || state AS name, %1$s AS n FROM %2$s$q$)) AS v(name, counted) LOOP
    EXECUTE format('CREATE FUNCTION redrive.count_removed_%s() RETURNS trigger LANGUAGE plpgsql AS %L', t.name,
      format(seldom, format(upsert, format(t.counted, '-1', 'removed'))));
    EXECUTE format('CREATE TRIGGER count_removed AFTER DELETE ON redrive.%1$I REFERENCING OLD TABLE AS removed
      FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_removed_%1$s()', t.name);
  END LOOP;
END $$;
-- What is stored already counts, too. As the engine: the owner of the tables sees no org's rows.
SET LOCAL ROLE redrive_engine;
INSERT INTO redrive.counter (org_id, name, shard, n)
SELECT org_id, 'event.bytes', 0, sum(octet_length(body)) FROM redrive.event GROUP BY org_id HAVING sum(octet_length(body)) > 0;
RESET ROLE;

-- task_goes_at: when a finished task may be removed under its policy's spec. NULL: it is kept.
-- core/retention.py says the same in Python; a test compares them.
CREATE FUNCTION redrive.task_goes_at(
  p_state text, p_reason text, p_received_at timestamptz, p_updated_at timestamptz, p_last_failed_at timestamptz, p_spec jsonb)
RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_state = 'succeeded' THEN
                p_updated_at + make_interval(secs => (p_spec -> 'retention' ->> 'delivered_s')::float8)
              WHEN p_state = 'dead' AND p_reason = 'permanent' THEN
                coalesce(p_last_failed_at, p_updated_at) + make_interval(secs => (p_spec -> 'retention' ->> 'failed_s')::float8)
              WHEN p_state = 'dead' THEN
                p_received_at + make_interval(secs => (p_spec -> 'retention' ->> 'dead_s')::float8) END
$$;

-- When the janitor last began with an org: of many workers one does it.
ALTER TABLE redrive.org ADD COLUMN swept_at timestamptz;
CREATE INDEX idempotency_by_age ON redrive.idempotency (org_id, created_at);

-- A person removes events of their org, with what belongs to them; policies of 0006 say who may.
GRANT DELETE ON redrive.event, redrive.task, redrive.attempt, redrive.dead_letter TO redrive_app;

GRANT USAGE ON SCHEMA redrive TO redrive_janitor;
GRANT SELECT, DELETE ON redrive.event, redrive.task, redrive.attempt, redrive.dead_letter, redrive.idempotency TO redrive_janitor;
GRANT UPDATE (updated_at) ON redrive.task TO redrive_janitor;  -- to hold a row still takes the right to change one of its columns
GRANT SELECT ON redrive.policy, redrive.org TO redrive_janitor;
GRANT UPDATE (swept_at) ON redrive.org TO redrive_janitor;
GRANT INSERT ON redrive.audit TO redrive_janitor;
GRANT SELECT, INSERT, UPDATE ON redrive.counter TO redrive_janitor;
DO $$
DECLARE t record;
BEGIN
  FOR t IN SELECT v.name, c.command FROM (VALUES
      ('event', 'SELECT DELETE'), ('task', 'SELECT UPDATE DELETE'), ('attempt', 'SELECT DELETE'),
      ('dead_letter', 'SELECT DELETE'), ('idempotency', 'SELECT DELETE'), ('policy', 'SELECT'), ('org', 'SELECT UPDATE'),
      ('audit', 'INSERT'), ('counter', 'SELECT INSERT UPDATE')) AS v(name, commands)
      CROSS JOIN LATERAL unnest(string_to_array(v.commands, ' ')) AS c(command) LOOP
    EXECUTE format('CREATE POLICY %I ON redrive.%I FOR %s TO redrive_janitor %s', 'janitor_' || lower(t.command), t.name,
      t.command, CASE t.command WHEN 'INSERT' THEN 'WITH CHECK (true)' ELSE 'USING (true)' END);
  END LOOP;
END $$;
