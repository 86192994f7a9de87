-- How an endpoint does, what protects it, and which worker has it to itself. A row of its own beside the endpoint, which people
-- change: workers write here, and nobody's edit waits for them. No row: nothing is known, and nothing is in the way.

CREATE TABLE redrive.endpoint_state (
  org_id          uuid NOT NULL,
  endpoint_id     uuid NOT NULL,
  -- health, as the workers' tallies tell it
  last_success_at timestamptz,
  last_failure_at timestamptz,
  failing_since   timestamptz,                        -- the first failure behind the last success; NULL: the last try succeeded
  failures        integer NOT NULL DEFAULT 0,         -- since then
  -- the breaker: open holds all tasks, probing lets one through, ramping lets more and more through
  breaker         text NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'probing', 'ramping')),
  breaker_since   timestamptz,
  breaker_reason  text,
  probe_at        timestamptz,                        -- when an open breaker lets a probe through
  opens           integer NOT NULL DEFAULT 0,         -- in a row, without closing between: the wait for a probe grows with them
  -- the one worker that may try its tasks while something is to be counted (limits, probes, a ramp)
  worker_id       uuid,
  owned_until     timestamptz,
  PRIMARY KEY (org_id, endpoint_id),
  CHECK ((breaker = 'open') = (probe_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
CALL redrive.secure('endpoint_state');
GRANT SELECT, INSERT, UPDATE ON redrive.endpoint_state TO redrive_app, redrive_engine;
CREATE INDEX endpoint_failing ON redrive.endpoint_state (failing_since) WHERE failing_since IS NOT NULL;
