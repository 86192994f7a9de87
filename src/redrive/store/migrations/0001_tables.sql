-- Tables of Redrive. Every tenant table leads its key with org_id, so that it can be distributed by tenant.
-- Access goes through two roles: redrive_app sees one org (redrive.org), redrive_engine sees all of them.

CREATE SCHEMA IF NOT EXISTS redrive;

DO $$
DECLARE role_name text;
BEGIN
  FOREACH role_name IN ARRAY ARRAY['redrive_app', 'redrive_engine', 'redrive_producer'] LOOP
    -- Roles belong to the cluster, not to the database: another Redrive may have made them.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
    END IF;
    -- From 16 on, making a role does not mean that one may become it; and becoming the engine or an app is a step
    -- of its own (SET ROLE), so that a plain connection of the owner sees no org's rows.
    IF current_setting('server_version_num')::int >= 160000 THEN
      IF NOT pg_has_role(current_user, role_name, 'SET') THEN
        EXECUTE format('GRANT %I TO CURRENT_USER WITH INHERIT %s', role_name,
                       CASE role_name WHEN 'redrive_producer' THEN 'TRUE' ELSE 'FALSE' END);
      END IF;
    ELSIF NOT pg_has_role(current_user, role_name, 'MEMBER') THEN
      EXECUTE format('GRANT %I TO CURRENT_USER', role_name);
    END IF;
  END LOOP;
END $$;

CREATE TABLE redrive.installation (
  singleton     boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  id            uuid NOT NULL DEFAULT gen_random_uuid(),
  seal_check    bytea,           -- proves that a process holds the key the secrets are sealed with
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO redrive.installation DEFAULT VALUES;

CREATE TABLE redrive.org (
  org_id        uuid PRIMARY KEY,
  name          text NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 100),
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE redrive.api_key (
  org_id        uuid NOT NULL REFERENCES redrive.org,
  id            uuid NOT NULL,
  name          text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  role          text NOT NULL CHECK (role IN ('OWNER', 'ADMIN', 'IT_MANAGER', 'STAFF', 'VIEWER')),
  hint          text NOT NULL,   -- what a person may see of the key
  lookup        bytea NOT NULL,  -- the first bytes of the hash: found by index, then compared in constant time
  hash          bytea NOT NULL,
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at    timestamptz,
  revoked_at    timestamptz,
  last_used_at  timestamptz,
  PRIMARY KEY (org_id, id)
);
CREATE INDEX api_key_lookup ON redrive.api_key (lookup);

-- Rows are immutable but for retired_at: an edit is a new row, and a task keeps the row it was accepted under.
CREATE TABLE redrive.policy (
  org_id        uuid NOT NULL REFERENCES redrive.org,
  id            uuid NOT NULL,
  name          text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  spec          jsonb NOT NULL,
  timeout_s     double precision NOT NULL CHECK (timeout_s > 0),
  preset        boolean NOT NULL DEFAULT false,
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  retired_at    timestamptz,
  PRIMARY KEY (org_id, id)
);
CREATE UNIQUE INDEX policy_in_force ON redrive.policy (org_id, name) WHERE retired_at IS NULL;

CREATE TABLE redrive.endpoint (
  org_id          uuid NOT NULL REFERENCES redrive.org,
  id              uuid NOT NULL,
  name            text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  kind            text NOT NULL DEFAULT 'http' CHECK (kind IN ('http', 'relay', 'rabbitmq')),
  url             text,
  event_types     text[] NOT NULL,
  type_patterns   text[] NOT NULL,  -- event_types as LIKE patterns
  policy          text,
  ordered         boolean NOT NULL DEFAULT false,
  external_system text,
  headers_sealed  bytea,            -- custom headers may carry credentials
  secret_sealed   bytea NOT NULL,
  ca_pem          text,
  timeout_s       double precision CHECK (timeout_s > 0),
  max_in_flight   integer CHECK (max_in_flight > 0),
  rate_per_s      double precision CHECK (rate_per_s > 0),
  disabled_at     timestamptz,
  disabled_reason text,
  deleted_at      timestamptz,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (org_id, id)
);
CREATE UNIQUE INDEX endpoint_name ON redrive.endpoint (org_id, name) WHERE deleted_at IS NULL;

-- The tables of the hot path (event, task, attempt) have no foreign keys: a check per row costs more than the
-- insert, and locks the one org row against itself. accept() writes them together; `redrive check` proves it.
-- What was handed in, byte for byte: what is signed is what was stored. Never updated: where an event stands is what its
-- tasks say (see the view event_entry), so that delivering it does not write it again.
CREATE TABLE redrive.event (
  org_id          uuid NOT NULL,
  id              uuid NOT NULL,
  event_type      text NOT NULL,
  tasks           integer NOT NULL CHECK (tasks >= 0),  -- how many it was fanned out to; none: it waits in the inbox
  endpoint_id     uuid,
  handler         text,
  policy          text,
  external_system text,
  ordering_key    text,
  correlation_id  text,
  occurred_at     timestamptz NOT NULL,
  received_at     timestamptz NOT NULL,
  content_type    text NOT NULL DEFAULT 'application/json',
  body            bytea NOT NULL,
  PRIMARY KEY (org_id, id)
);
-- The lists that people page through. Ids tell no order: producers may bring their own.
CREATE INDEX event_by_age ON redrive.event (org_id, received_at, id);
CREATE INDEX event_in_inbox ON redrive.event (org_id, received_at, id) WHERE tasks = 0;

CREATE TABLE redrive.task (
  org_id          uuid NOT NULL,
  id              uuid NOT NULL,
  event_id        uuid NOT NULL,
  endpoint_id     uuid,
  policy_id       uuid NOT NULL,
  kind            text NOT NULL,
  queue           text NOT NULL,    -- what a worker must be able to do: 'http', 'handler:<name>'
  state           text NOT NULL CHECK (state IN ('waiting', 'leased', 'held', 'succeeded', 'dead')),
  event_type      text NOT NULL,
  external_system text,
  reason          text CHECK (reason IN ('permanent', 'exhausted', 'expired', 'skipped')),
  due_at          timestamptz NOT NULL,
  received_at     timestamptz NOT NULL,  -- the event's
  begun_at        timestamptz NOT NULL,  -- when this generation began: the policy's max age counts from here
  updated_at      timestamptz NOT NULL,
  leased_at       timestamptz,
  lease_ends_at   timestamptz,
  first_failed_at timestamptz,
  last_failed_at  timestamptz,
  worker_id       uuid,
  fence           integer NOT NULL DEFAULT 0,
  attempts        integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  generation      integer NOT NULL DEFAULT 0,
  expedited       boolean NOT NULL DEFAULT false,  -- a person asked for a try now
  live            boolean NOT NULL GENERATED ALWAYS AS (state IN ('waiting', 'leased')) STORED,
  open            boolean NOT NULL GENERATED ALWAYS AS (state IN ('waiting', 'leased', 'held')) STORED,
  PRIMARY KEY (org_id, id),
  CHECK ((state = 'leased') = (worker_id IS NOT NULL)),
  CHECK ((state = 'dead') = (reason IS NOT NULL))
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- A claim changes nothing that an index knows of, and finds room on the row's own page (fillfactor): it writes no index at
-- all. So no index may speak of the state, the fence or the lease; `live`, `open` and `reason` say what they need.
-- The one clock of the engine: what is due, first tries and retries and expired leases alike.
CREATE INDEX task_due ON redrive.task (queue, due_at, id) WHERE live;
CREATE INDEX task_of_event ON redrive.task (org_id, event_id);
-- Events by where they stand: queued while a task is open, failed when one is dead.
CREATE INDEX task_open ON redrive.task (org_id, received_at, event_id) WHERE open;
CREATE INDEX task_dead ON redrive.task (org_id, received_at, event_id) WHERE reason IS NOT NULL;
-- The retry queue: open tasks that have failed before.
CREATE INDEX task_retrying ON redrive.task (org_id, due_at, id) WHERE open AND attempts > 0;
CREATE INDEX task_held ON redrive.task (org_id, endpoint_id, id) WHERE open AND NOT live;

-- One row per try, written once when it ends: the open attempt is the lease on the task itself.
-- (org_id, task_id, fence): every fence that a task ever had, but the one now leased, ended in exactly one row.
CREATE TABLE redrive.attempt (
  org_id             uuid NOT NULL,
  task_id            uuid NOT NULL,
  fence              integer NOT NULL,
  generation         integer NOT NULL,
  number             integer NOT NULL,       -- tries of this generation, this one included
  result             text NOT NULL CHECK (result IN ('succeeded', 'failed', 'lost', 'released')),
  worker_id          uuid,
  started_at         timestamptz NOT NULL,
  ended_at           timestamptz NOT NULL,
  status_code        integer,
  category           text,
  possible_duplicate boolean NOT NULL DEFAULT false,
  truncated          boolean NOT NULL DEFAULT false,
  error_message      text,
  error_stack        text,
  url                text,
  request_headers    text,
  response_headers   text,
  response_body      bytea,
  late_at            timestamptz,            -- a result that came after its lease was lost: evidence, no effect
  late_result        text,
  PRIMARY KEY (org_id, task_id, fence)
);

CREATE TABLE redrive.dead_letter (
  org_id           uuid NOT NULL,
  task_id          uuid NOT NULL,
  state            text NOT NULL CHECK (state IN ('open', 'replaying', 'resolved', 'ignored', 'deleted')),
  kind             text NOT NULL,
  event_id         uuid NOT NULL,
  endpoint_id      uuid,
  event_type       text NOT NULL,
  external_system  text,
  reason           text NOT NULL CHECK (reason IN ('permanent', 'exhausted', 'expired', 'skipped')),
  category         text NOT NULL,
  fingerprint      text NOT NULL,
  error_message    text NOT NULL,
  config           jsonb,           -- the endpoint as it was at death, without secrets
  first_failed_at  timestamptz,
  failed_at        timestamptz NOT NULL,
  generation       integer NOT NULL,
  created_at       timestamptz NOT NULL,
  updated_at       timestamptz NOT NULL,
  replays          integer NOT NULL DEFAULT 0,
  replayed_at      timestamptz,
  replayed_by      text,
  replayed_because text,
  replay_outcome   text CHECK (replay_outcome IN ('succeeded', 'failed')),
  closed_at        timestamptz,
  closed_by        text,
  closed_because   text,
  PRIMARY KEY (org_id, task_id),
  FOREIGN KEY (org_id, task_id) REFERENCES redrive.task (org_id, id)
);
CREATE INDEX dead_letter_by_age ON redrive.dead_letter (org_id, state, created_at, task_id);
CREATE INDEX dead_letter_by_type ON redrive.dead_letter (org_id, state, event_type, created_at, task_id);
CREATE INDEX dead_letter_by_endpoint ON redrive.dead_letter (org_id, state, endpoint_id, created_at, task_id);
CREATE INDEX dead_letter_by_cause ON redrive.dead_letter (org_id, state, fingerprint, created_at, task_id);

CREATE TABLE redrive.audit (
  org_id        uuid NOT NULL REFERENCES redrive.org,
  id            uuid NOT NULL,
  at            timestamptz NOT NULL,
  actor         text NOT NULL,
  action        text NOT NULL,
  subject_kind  text NOT NULL,
  subject_id    uuid,
  because       text,
  correlation_id text,
  before        jsonb,
  after         jsonb,
  PRIMARY KEY (org_id, id)
);
CREATE INDEX audit_of_subject ON redrive.audit (org_id, subject_id, id);

-- Kept on write, never counted on read. Sharded so that sessions don't queue for one row; a read adds the shards up.
CREATE TABLE redrive.counter (
  org_id  uuid NOT NULL,
  name    text NOT NULL,
  shard   smallint NOT NULL,
  n       bigint NOT NULL,
  PRIMARY KEY (org_id, name, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
