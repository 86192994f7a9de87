-- Workflows: runs of ordered steps. A step is carried out by a task, so that its retries, its leases and its dead letter are those of
-- everything else; here is what holds the steps of a run together.

-- Rows are immutable but for retired_at: an edit is a new version, and a run keeps the one it began with.
CREATE TABLE redrive.workflow (
  org_id         uuid NOT NULL REFERENCES redrive.org,
  id             uuid NOT NULL,
  name           text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  version        integer NOT NULL CHECK (version > 0),
  steps          integer NOT NULL CHECK (steps > 0),
  spec           text NOT NULL,    -- JSON, in the order in which it was written; without the headers that are no templates
  headers_sealed bytea,            -- those: they may carry credentials
  shown          text NOT NULL,    -- JSON: what people may see of it
  bindings       text NOT NULL,    -- JSON, for each step: which policy of its own it runs under, and which endpoint it calls
  created_at     timestamptz NOT NULL,
  created_by     text NOT NULL,
  retired_at     timestamptz,
  PRIMARY KEY (org_id, id)
);
CREATE UNIQUE INDEX workflow_version ON redrive.workflow (org_id, name, version);
CREATE UNIQUE INDEX workflow_in_force ON redrive.workflow (org_id, name) WHERE retired_at IS NULL;

CREATE TABLE redrive.run (
  org_id            uuid NOT NULL,
  id                uuid NOT NULL,
  workflow_id       uuid NOT NULL,
  workflow          text NOT NULL,
  version           integer NOT NULL,
  steps             integer NOT NULL,
  retention_s       double precision,  -- how long it is kept once it has ended; NULL: for ever
  status            text NOT NULL CHECK (status IN ('PENDING', 'RUNNING', 'SUCCESS', 'FAILED', 'PARTIAL', 'DLQ_PENDING')),
  input             bytea NOT NULL,
  correlation_id    text,
  traceparent       text,           -- that of the request that began it
  stop_after        integer,        -- a person asked for this step alone
  replays           integer NOT NULL DEFAULT 0,
  created_at        timestamptz NOT NULL,
  created_by        text NOT NULL,
  updated_at        timestamptz NOT NULL,
  started_at        timestamptz,
  finished_at       timestamptz,
  cancelled_at      timestamptz,    -- asked for: a try that is under way ends first
  cancelled_by      text,
  cancelled_because text,
  PRIMARY KEY (org_id, id),
  CHECK ((finished_at IS NULL) = (status IN ('PENDING', 'RUNNING', 'DLQ_PENDING')))
) WITH (fillfactor = 70);
CREATE INDEX run_by_age ON redrive.run (org_id, created_at, id);
CREATE INDEX run_by_status ON redrive.run (org_id, status, created_at, id);
CREATE INDEX run_by_workflow ON redrive.run (org_id, workflow, created_at, id);
CREATE INDEX run_that_goes ON redrive.run (org_id, finished_at) WHERE retention_s IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX run_by_workflow_and_status ON redrive.run (org_id, workflow, status, created_at, id);
-- How often a value stands in the table says nothing about one org's runs (see 0012): any is told to be rare.
ALTER TABLE redrive.run ALTER COLUMN workflow SET (n_distinct = 1000), ALTER COLUMN status SET (n_distinct = 1000);

-- A row per step that a run has come to. Tasks of earlier executions are found by task_of_run.
CREATE TABLE redrive.step (
  org_id                uuid NOT NULL,
  run_id                uuid NOT NULL,
  index                 integer NOT NULL CHECK (index >= 0),
  name                  text NOT NULL,
  task_id               uuid,             -- NULL: it is to be run again, and the run has not come to it
  execution             integer NOT NULL DEFAULT 0,  -- how often a new task was made for it because the one before had succeeded
  idempotency_key       text NOT NULL,    -- what goes out with its effects; the same for every try
  renewal               integer NOT NULL DEFAULT 0,  -- how often a person asked for another key
  url                   text,
  headers               text,             -- JSON: rendered since the run first came to it. NULL: those of its event
  problem               text,             -- why it cannot be tried
  output                bytea,
  output_is_cut         boolean NOT NULL DEFAULT false,
  done_at               timestamptz,      -- when the task succeeded
  retry_policy_override text,             -- JSON: what a person replayed it under
  PRIMARY KEY (org_id, run_id, index)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX step_key ON redrive.step (org_id, idempotency_key);

-- What a handler did once under a name, and what came of it: a step that runs twice does it once.
CREATE TABLE redrive.effect (
  org_id  uuid NOT NULL,
  key     text NOT NULL CHECK (length(key) BETWEEN 1 AND 500),
  run_id  uuid NOT NULL,
  result  bytea NOT NULL,
  at      timestamptz NOT NULL,
  PRIMARY KEY (org_id, key)
);
CREATE INDEX effect_of_run ON redrive.effect (org_id, run_id);

CALL redrive.secure('workflow');
CALL redrive.secure('run');
CALL redrive.secure('step');
CALL redrive.secure('effect');
GRANT SELECT, INSERT, UPDATE ON redrive.workflow, redrive.run, redrive.step TO redrive_app, redrive_engine;
GRANT SELECT, INSERT ON redrive.effect TO redrive_engine;
-- What has ended goes after a while, where its workflow says so.
GRANT SELECT, DELETE ON redrive.run, redrive.step, redrive.effect TO redrive_janitor;
GRANT UPDATE (updated_at) ON redrive.run TO redrive_janitor;  -- to hold a row still takes the right to change one of its columns
DO $$
DECLARE t record;
BEGIN
  FOR t IN SELECT v.name, c.command FROM (VALUES ('run', 'SELECT UPDATE DELETE'), ('step', 'SELECT DELETE'), ('effect', 'SELECT DELETE'))
             AS v(name, commands) CROSS JOIN LATERAL unnest(string_to_array(v.commands, ' ')) AS c(command) LOOP
    EXECUTE format('CREATE POLICY %I ON redrive.%I FOR %s TO redrive_janitor USING (true)', 'janitor_' || lower(t.command), t.name,
                   t.command);
  END LOOP;
END $$;
-- A replay makes tasks for steps that had succeeded; policies of 0006 say who may.
GRANT INSERT ON redrive.event, redrive.task TO redrive_app;

ALTER TABLE redrive.task
  ADD COLUMN run_id uuid,     -- of the run that it is a step of
  ADD COLUMN step   integer;
CREATE INDEX task_of_run ON redrive.task (org_id, run_id, step, id) WHERE run_id IS NOT NULL;
-- One step after the other.
CREATE UNIQUE INDEX task_under_way ON redrive.task (org_id, run_id) WHERE run_id IS NOT NULL AND open;

-- core/run_states.py has the same list; a test compares them. Only a person's replay leaves an end.
CREATE TRIGGER run_transition BEFORE UPDATE ON redrive.run FOR EACH ROW
  WHEN (OLD.status <> NEW.status AND (
          (OLD.status || '>' || NEW.status) NOT IN (
            'PENDING>RUNNING', 'PENDING>FAILED', 'PENDING>DLQ_PENDING', 'RUNNING>SUCCESS', 'RUNNING>FAILED', 'RUNNING>PARTIAL',
            'RUNNING>DLQ_PENDING', 'DLQ_PENDING>RUNNING', 'DLQ_PENDING>FAILED', 'FAILED>RUNNING', 'FAILED>DLQ_PENDING',
            'PARTIAL>RUNNING', 'SUCCESS>RUNNING')
          OR NEW.status = 'RUNNING' AND OLD.status <> 'PENDING' AND NEW.replays = OLD.replays))
  EXECUTE FUNCTION redrive.refuse_transition();

-- Counted as tasks are: 'run.<status>'; and 'run.bytes', what their inputs take.
DO $$
DECLARE
  t record;
  counted CONSTANT text := $q$SELECT org_id, 'run.' || status AS name, %1$s AS n FROM %2$s$q$;
  bytes CONSTANT text := $q$ UNION ALL SELECT org_id, 'run.bytes', %1$s * octet_length(input) FROM %2$s$q$;
  body CONSTANT text := 'BEGIN
    IF EXISTS (SELECT FROM %1$s) THEN
      INSERT INTO redrive.counter AS c (org_id, name, shard, n)
      SELECT org_id, name, redrive.own_shard(), sum(n) FROM (%2$s) d
       GROUP BY org_id, name HAVING sum(n) <> 0 ORDER BY org_id, name
      ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
    END IF;
    RETURN NULL;
  END';
BEGIN
  FOR t IN SELECT * FROM (VALUES
      ('added', 'INSERT', 'NEW TABLE AS added', 'added', format(counted || bytes, '1', 'added')),
      ('moved', 'UPDATE', 'OLD TABLE AS removed NEW TABLE AS added', 'added',
       format(counted, '-1', 'removed') || ' UNION ALL ' || format(counted, '1', 'added')),
      ('removed', 'DELETE', 'OLD TABLE AS removed', 'removed', format(counted || bytes, '-1', 'removed')))
        AS v(name, command, tables, rows, changes) LOOP
    EXECUTE format('CREATE FUNCTION redrive.count_%s_run() RETURNS trigger LANGUAGE plpgsql AS %L', t.name,
                   format(body, t.rows, t.changes));
    EXECUTE format('CREATE TRIGGER count_%1$s AFTER %2$s ON redrive.run REFERENCING %3$s
                      FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_%1$s_run()', t.name, t.command, t.tables);
  END LOOP;
END $$;

-- count_for: add to a counter of an org, outside of the tables that are counted.
CREATE FUNCTION redrive.count_for(p_org uuid, p_name text, p_n bigint) RETURNS void LANGUAGE sql AS $$
  INSERT INTO redrive.counter AS c (org_id, name, shard, n) VALUES (p_org, p_name, redrive.own_shard(), p_n)
  ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n
$$;

-- A run that is cancelled is done with its letters: also with one that was being replayed.
DROP TRIGGER dead_letter_transition ON redrive.dead_letter;
CREATE TRIGGER dead_letter_transition BEFORE UPDATE ON redrive.dead_letter FOR EACH ROW
  WHEN (OLD.state <> NEW.state AND (OLD.state || '>' || NEW.state) NOT IN (
    'open>replaying', 'open>resolved', 'open>ignored', 'open>deleted', 'replaying>resolved', 'replaying>open', 'replaying>ignored',
    'resolved>replaying', 'resolved>deleted', 'resolved>open', 'ignored>replaying', 'ignored>resolved',
    'ignored>deleted', 'ignored>open'))
  EXECUTE FUNCTION redrive.refuse_transition();

-- A step dies. Its letter remembers how it was configured: the step as its workflow's version shows it to people. Where its run was
-- cancelled, nobody need look at it.
CREATE FUNCTION redrive.judge_step_letter() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_run redrive.run;
BEGIN
  SELECT r.* INTO v_run
    FROM redrive.task t JOIN redrive.run r ON r.org_id = t.org_id AND r.id = t.run_id
   WHERE t.org_id = NEW.org_id AND t.id = NEW.task_id;
  SELECT jsonb_build_object('workflow', v_run.workflow, 'version', v_run.version, 'step', w.shown::jsonb -> 'steps' -> t.step,
                            'endpoint', redrive.config_of(t.org_id, t.endpoint_id))
    INTO NEW.config
    FROM redrive.task t JOIN redrive.workflow w ON w.org_id = t.org_id AND w.id = v_run.workflow_id
   WHERE t.org_id = NEW.org_id AND t.id = NEW.task_id;
  IF v_run.cancelled_at IS NOT NULL THEN
    NEW.state := 'ignored';
    NEW.closed_at := NEW.updated_at;
    NEW.closed_by := v_run.cancelled_by;
    NEW.closed_because := coalesce(v_run.cancelled_because, 'the run was cancelled');
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER judge_step_letter BEFORE INSERT ON redrive.dead_letter FOR EACH ROW
  WHEN (NEW.kind = 'step') EXECUTE FUNCTION redrive.judge_step_letter();
CREATE TRIGGER judge_step_letter_again BEFORE UPDATE ON redrive.dead_letter FOR EACH ROW
  WHEN (NEW.kind = 'step' AND NEW.generation <> OLD.generation) EXECUTE FUNCTION redrive.judge_step_letter();

-- A run follows the letters of its steps, whoever writes them: a death puts it in front of people, a replay sets it going again, and
-- where people are done with all of its letters, it has failed: so who closes or opens one waits, at the run, for who is at another.
-- What the engine does to a letter is audited here, as people's acts are.
CREATE FUNCTION redrive.follow_letter() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_run  uuid;
  v_step integer;
  v_state text;
  v_correlation text;
BEGIN
  SELECT t.run_id, t.step, t.state, r.correlation_id INTO v_run, v_step, v_state, v_correlation
    FROM redrive.task t JOIN redrive.run r ON r.org_id = t.org_id AND r.id = t.run_id
   WHERE t.org_id = NEW.org_id AND t.id = NEW.task_id;
  IF TG_OP = 'INSERT' OR NEW.generation <> OLD.generation THEN
    UPDATE redrive.run SET status = CASE NEW.state WHEN 'open' THEN 'DLQ_PENDING' ELSE 'FAILED' END,
           finished_at = CASE WHEN NEW.state <> 'open' THEN NEW.updated_at END, updated_at = NEW.updated_at
     WHERE org_id = NEW.org_id AND id = v_run;
    -- Letters of later steps, whose turn would have come: it does not.
    UPDATE redrive.dead_letter d SET state = NEW.state, replay_outcome = 'failed', updated_at = NEW.updated_at,
           closed_at = NEW.closed_at, closed_by = NEW.closed_by, closed_because = NEW.closed_because
      FROM redrive.task t
     WHERE t.org_id = NEW.org_id AND t.run_id = v_run AND t.step > v_step AND t.state = 'dead'
       AND d.org_id = t.org_id AND d.task_id = t.id AND d.state = 'replaying';
    IF NEW.state = 'open' THEN
      PERFORM redrive.count_for(NEW.org_id, 'workflow.dlq_moves', 1);
      INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, correlation_id, after)
      VALUES (NEW.org_id, redrive.uuid7(), clock_timestamp(), 'engine', 'dead_letter.move', 'dead_letter', NEW.task_id, v_correlation,
              jsonb_build_object('run_id', v_run, 'step_index', v_step, 'reason', NEW.reason, 'category', NEW.category));
    END IF;
  ELSIF NEW.state = 'replaying' THEN
    UPDATE redrive.run SET status = 'RUNNING', replays = replays + 1, stop_after = NULL, finished_at = NULL,
           started_at = coalesce(started_at, NEW.updated_at), cancelled_at = NULL, cancelled_by = NULL, cancelled_because = NULL, updated_at = NEW.updated_at
     WHERE org_id = NEW.org_id AND id = v_run AND status <> 'RUNNING';
    PERFORM redrive.count_for(NEW.org_id, 'workflow.dlq_replays', 1);
  ELSIF NEW.state = 'open' AND OLD.state <> 'replaying' THEN
    -- Somebody may be at another letter of the run: they, too, decide by what the other did.
    PERFORM FROM redrive.run r WHERE r.org_id = NEW.org_id AND r.id = v_run AND r.status IN ('DLQ_PENDING', 'FAILED') FOR UPDATE;
    UPDATE redrive.run SET status = 'DLQ_PENDING', finished_at = NULL, updated_at = NEW.updated_at
     WHERE org_id = NEW.org_id AND id = v_run AND status = 'FAILED';
  ELSIF NEW.state IN ('resolved', 'ignored', 'deleted') AND v_state = 'dead' THEN
    PERFORM FROM redrive.run r WHERE r.org_id = NEW.org_id AND r.id = v_run AND r.status IN ('DLQ_PENDING', 'FAILED') FOR UPDATE;
    UPDATE redrive.run r SET status = 'FAILED', finished_at = NEW.updated_at, updated_at = NEW.updated_at
     WHERE r.org_id = NEW.org_id AND r.id = v_run AND r.status = 'DLQ_PENDING' AND NOT EXISTS (
       SELECT FROM redrive.task t JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
        WHERE t.org_id = NEW.org_id AND t.run_id = v_run AND d.state = 'open');
  END IF;
  IF TG_OP = 'UPDATE' AND OLD.state = 'replaying' AND NEW.state <> 'replaying' THEN
    INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, correlation_id, after)
    VALUES (NEW.org_id, redrive.uuid7(), clock_timestamp(), 'engine', 'dead_letter.replay_outcome', 'dead_letter', NEW.task_id,
            v_correlation, jsonb_build_object('run_id', v_run, 'step_index', v_step, 'outcome', NEW.replay_outcome));
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER follow_letter AFTER INSERT ON redrive.dead_letter FOR EACH ROW
  WHEN (NEW.kind = 'step') EXECUTE FUNCTION redrive.follow_letter();
CREATE TRIGGER follow_letter_again AFTER UPDATE ON redrive.dead_letter FOR EACH ROW
  WHEN (NEW.kind = 'step' AND (NEW.state <> OLD.state OR NEW.generation <> OLD.generation)) EXECUTE FUNCTION redrive.follow_letter();

-- enqueue_steps: runs have come to these steps: an event that holds the input, a task to carry it out. The event's id tells the run, the
-- step and the execution, so that none is there twice: the run is locked by whoever asks, and a step that has a task is passed over.
-- The rows that were asked for are not joined with each other, which the engine can only do one by one against all. (The id is that of
-- redrive.id_of_key, written out: to call it takes longer than what it does.)
CREATE FUNCTION redrive.enqueue_steps(
  p_org uuid[], p_run uuid[], p_index integer[], p_name text[], p_queue text[], p_type text[], p_endpoint uuid[], p_policy text[],
  p_policy_id uuid[], p_external text[], p_body bytea[], p_headers text[], p_url text[], p_problem text[], p_due_in_s float8[],
  p_now timestamptz DEFAULT NULL)
RETURNS integer LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now  timestamptz := coalesce(p_now, clock_timestamp());
  v_n    integer;
  v_told text;
BEGIN
  WITH asked AS MATERIALIZED (
    SELECT r.*, u.correlation_id, k.execution, redrive.uuid7() AS task_id, v_now + make_interval(secs => r.due_in_s) AS due_at,
           encode(set_byte(set_byte(h.bytes, 6, (get_byte(h.bytes, 6) & 15) | 128), 8, (get_byte(h.bytes, 8) & 63) | 128),
                  'hex')::uuid AS event_id
      FROM unnest(p_org, p_run, p_index, p_name, p_queue, p_type, p_endpoint, p_policy, p_policy_id, p_external, p_body, p_headers,
                  p_url, p_problem, p_due_in_s)
           AS r(org_id, run_id, index, name, queue, type, endpoint_id, policy, policy_id, external, body, headers, url, problem, due_in_s)
      JOIN redrive.run u ON u.org_id = r.org_id AND u.id = r.run_id
      LEFT JOIN redrive.step s ON s.org_id = r.org_id AND s.run_id = r.run_id AND s.index = r.index
     CROSS JOIN LATERAL (SELECT coalesce(s.execution + 1, 0) AS execution) k
     CROSS JOIN LATERAL (
       SELECT substring(sha256(uuid_send(r.org_id) || convert_to(concat_ws(':', 'step', r.run_id, r.index, k.execution), 'UTF8'))
                        FROM 1 FOR 16) AS bytes OFFSET 0) h
     WHERE s.task_id IS NULL),
  stored AS (
    INSERT INTO redrive.event (org_id, id, event_type, tasks, endpoint_id, external_system, correlation_id, occurred_at, received_at,
                               body, headers)
    SELECT a.org_id, a.event_id, a.type, 1, a.endpoint_id, a.external, a.correlation_id, v_now, v_now, a.body, a.headers FROM asked a),
  queued AS (
    INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type, external_system,
                              due_at, received_at, begun_at, updated_at, run_id, step)
    SELECT a.org_id, a.task_id, a.event_id, a.endpoint_id,
           coalesce(a.policy_id,
             (SELECT p.id FROM redrive.policy p WHERE p.org_id = a.org_id AND p.name = a.policy AND p.retired_at IS NULL),
             (SELECT p.id FROM redrive.policy p WHERE p.org_id = a.org_id AND p.name = 'workflow' AND p.retired_at IS NULL),
             (SELECT p.id FROM redrive.policy p WHERE p.org_id = a.org_id AND p.name = 'integration' AND p.retired_at IS NULL)),
           'step', a.queue, 'waiting', a.type, a.external, a.due_at, v_now, a.due_at, v_now, a.run_id, a.index
      FROM asked a),
  noted AS (
    INSERT INTO redrive.step AS s (org_id, run_id, index, name, task_id, execution, idempotency_key, url, problem)
    SELECT a.org_id, a.run_id, a.index, a.name, a.task_id, a.execution, concat_ws(':', a.run_id, a.index), a.url, a.problem FROM asked a
    ON CONFLICT (org_id, run_id, index) DO UPDATE SET
           task_id = excluded.task_id, execution = excluded.execution, url = excluded.url, problem = excluded.problem,
           output = NULL, output_is_cut = false, done_at = NULL)
  SELECT (SELECT count(*) FROM asked),
         redrive.tell(array_agg(t.queue), array_agg(t.org_id), array_agg(t.endpoint_id))::text
    INTO v_n, v_told
    FROM (SELECT DISTINCT a.queue, a.org_id, a.endpoint_id FROM asked a) t;
  RETURN v_n;
END $$;

-- begin_run: a run of a workflow's version, with its first step. The same id is the same run. The verdict is accepted | duplicate |
-- conflict (known with another workflow or input).
CREATE FUNCTION redrive.begin_run(
  p_org uuid, p_workflow uuid, p_id uuid, p_input bytea, p_correlation text, p_traceparent text, p_by text, p_name text, p_queue text,
  p_type text, p_endpoint uuid, p_policy text, p_policy_id uuid, p_external text, p_body bytea, p_headers text, p_url text,
  p_problem text, p_due_in_s float8, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
  INSERT INTO redrive.run (org_id, id, workflow_id, workflow, version, steps, retention_s, status, input, correlation_id, traceparent,
                           created_at, created_by, updated_at)
  SELECT w.org_id, p_id, w.id, w.name, w.version, w.steps, (w.spec::jsonb ->> 'retention_s')::float8, 'PENDING', p_input, p_correlation, p_traceparent, v_now, p_by, v_now
    FROM redrive.workflow w WHERE w.org_id = p_org AND w.id = p_workflow
  ON CONFLICT (org_id, id) DO NOTHING;
  IF NOT FOUND THEN
    RETURN (SELECT CASE WHEN r.input = p_input AND r.workflow = w.name THEN 'duplicate' ELSE 'conflict' END
              FROM redrive.run r, redrive.workflow w
             WHERE r.org_id = p_org AND r.id = p_id AND w.org_id = p_org AND w.id = p_workflow);
  END IF;
  PERFORM redrive.enqueue_steps(
    ARRAY[p_org], ARRAY[p_id], ARRAY[0], ARRAY[p_name], ARRAY[p_queue], ARRAY[p_type], ARRAY[p_endpoint], ARRAY[p_policy],
    ARRAY[p_policy_id], ARRAY[p_external], ARRAY[p_body], ARRAY[p_headers], ARRAY[p_url], ARRAY[p_problem], ARRAY[p_due_in_s], p_now);
  RETURN 'accepted';
END $$;

-- workflow_in_force: what a producer needs to begin a run: the definition without what is sealed. NULL where there is none.
CREATE FUNCTION redrive.workflow_in_force(p_org text, p_name text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
  SELECT json_build_object('org_id', w.org_id, 'id', w.id, 'name', w.name, 'version', w.version, 'spec', w.spec, 'bindings', w.bindings)::text
    FROM redrive.org o JOIN redrive.workflow w ON w.org_id = o.org_id
   WHERE o.name = p_org AND w.name = p_name AND w.retired_at IS NULL
$$;

-- hand_in_run: begin_run from within the caller's own transaction, for producers.
CREATE FUNCTION redrive.hand_in_run(
  p_org uuid, p_workflow uuid, p_id uuid, p_input bytea, p_correlation text, p_traceparent text, p_by text, p_name text, p_queue text,
  p_type text, p_endpoint uuid, p_policy text, p_policy_id uuid, p_external text, p_body bytea, p_headers text, p_url text,
  p_problem text, p_due_in_s float8)
RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
  SELECT redrive.begin_run(p_org, p_workflow, p_id, p_input, p_correlation, p_traceparent, p_by, p_name, p_queue, p_type, p_endpoint,
                           p_policy, p_policy_id, p_external, p_body, p_headers, p_url, p_problem, p_due_in_s)
$$;

-- They run as the engine, whoever calls them, as hand_in does.
REVOKE ALL ON FUNCTION redrive.enqueue_steps, redrive.begin_run, redrive.workflow_in_force, redrive.hand_in_run FROM PUBLIC;
GRANT EXECUTE ON FUNCTION redrive.enqueue_steps, redrive.begin_run TO redrive_app, redrive_engine;
GRANT EXECUTE ON FUNCTION redrive.workflow_in_force, redrive.hand_in_run TO redrive_producer;
GRANT CREATE ON SCHEMA redrive TO redrive_engine;
ALTER FUNCTION redrive.workflow_in_force OWNER TO redrive_engine;
ALTER FUNCTION redrive.hand_in_run OWNER TO redrive_engine;
REVOKE CREATE ON SCHEMA redrive FROM redrive_engine;
