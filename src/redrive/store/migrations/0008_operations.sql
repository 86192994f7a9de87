-- Operations: a bulk action as an object. Its items are written down at the click; then any process takes the next step,
-- each in one short transaction: what a killed one had not committed, the next one does.

CREATE TABLE redrive.operation (
  org_id           uuid NOT NULL REFERENCES redrive.org,
  id               uuid NOT NULL,
  subject          text NOT NULL CHECK (subject IN ('retry_queue', 'dead_letters')),
  action           text NOT NULL CHECK (action IN ('retry', 'skip', 'resolve', 'ignore', 'delete')),
  state            text NOT NULL CHECK (state IN ('preparing', 'running', 'paused', 'cancelled', 'completed')),
  filter           jsonb,            -- what was chosen; NULL where ids were given
  at_once          boolean NOT NULL DEFAULT false,
  canary           jsonb,            -- {stages: [percent, …], max_failure_rate}
  rate_per_s       double precision CHECK (rate_per_s > 0),
  actor            text NOT NULL,
  because          text,
  correlation_id   text,
  source           text,
  note             text,             -- why it paused by itself
  total            integer NOT NULL DEFAULT 0 CHECK (total >= 0),
  dispatched       integer NOT NULL DEFAULT 0,  -- items 1 … dispatched have been acted on
  succeeded        integer NOT NULL DEFAULT 0 CHECK (succeeded >= 0),
  failed           integer NOT NULL DEFAULT 0 CHECK (failed >= 0),
  done             integer NOT NULL GENERATED ALWAYS AS (succeeded + failed) STORED,
  collected        boolean NOT NULL DEFAULT false,  -- whether all items are written down
  collected_at     timestamptz,      -- where collecting stands: the sort key of the last row looked at
  collected_id     uuid,
  stage            integer NOT NULL DEFAULT 0,  -- of the canary; and the sums when it began
  stage_done       integer NOT NULL DEFAULT 0,
  stage_failed     integer NOT NULL DEFAULT 0,
  paid_until       timestamptz,      -- up to when the rate has been used
  step_at          timestamptz NOT NULL,  -- not before then does it need another step
  active           boolean NOT NULL GENERATED ALWAYS AS (
                     state IN ('preparing', 'running') OR dispatched > succeeded + failed) STORED,
  created_at       timestamptz NOT NULL,
  updated_at       timestamptz NOT NULL,
  finished_at      timestamptz,
  PRIMARY KEY (org_id, id),
  CHECK (dispatched <= total AND succeeded + failed <= dispatched),
  CHECK (state <> 'completed' OR (collected AND succeeded + failed = total)),
  CHECK ((finished_at IS NOT NULL) = (state IN ('completed', 'cancelled') AND succeeded + failed = dispatched))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
-- Who is next, over all orgs: whoever has waited longest.
CREATE INDEX operation_next ON redrive.operation (step_at) WHERE active;

-- An item per task, numbered without gaps. Written by the ten thousand: no foreign keys, `redrive check` counts them.
CREATE TABLE redrive.operation_item (
  org_id        uuid NOT NULL,
  operation_id  uuid NOT NULL,
  n             integer NOT NULL CHECK (n > 0),
  task_id       uuid NOT NULL,
  state         text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'succeeded', 'failed')),
  fence         integer,          -- of the task when it was sent: the first try beyond it is the result
  note          text,             -- why it failed
  PRIMARY KEY (org_id, operation_id, n)
);
-- A task is an item once, even where its place in the queue changes while items are collected.
CREATE UNIQUE INDEX operation_item_task ON redrive.operation_item (org_id, operation_id, task_id);
CREATE INDEX operation_item_sent ON redrive.operation_item (org_id, operation_id, n) WHERE state = 'sent';

-- What has ended stays so, and nothing is counted back.
CREATE TRIGGER operation_transition BEFORE UPDATE ON redrive.operation FOR EACH ROW
  WHEN ((OLD.state IN ('completed', 'cancelled') AND NEW.state <> OLD.state)
        OR NEW.total < OLD.total OR NEW.dispatched < OLD.dispatched
        OR NEW.succeeded < OLD.succeeded OR NEW.failed < OLD.failed)
  EXECUTE FUNCTION redrive.refuse_transition();
CREATE TRIGGER operation_item_transition BEFORE UPDATE ON redrive.operation_item FOR EACH ROW
  WHEN (OLD.state IN ('succeeded', 'failed') OR (OLD.state = 'sent' AND NEW.state = 'waiting'))
  EXECUTE FUNCTION redrive.refuse_transition();

CALL redrive.secure('operation');
CALL redrive.secure('operation_item');
GRANT SELECT, INSERT ON redrive.operation, redrive.operation_item TO redrive_app;
GRANT UPDATE (state, note, step_at, updated_at, finished_at) ON redrive.operation TO redrive_app;
GRANT SELECT, UPDATE ON redrive.operation TO redrive_engine;
GRANT SELECT, INSERT, UPDATE ON redrive.operation_item TO redrive_engine;
