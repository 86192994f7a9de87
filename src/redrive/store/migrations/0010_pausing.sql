-- The kill switch: the installation, an org or an endpoint can be paused. What is paused holds its tasks as they fall due.
ALTER TABLE redrive.installation
  ADD COLUMN paused_at timestamptz, ADD COLUMN paused_by text, ADD COLUMN paused_because text,
  ADD COLUMN resumed_at timestamptz;
ALTER TABLE redrive.org
  ADD COLUMN paused_at timestamptz, ADD COLUMN paused_by text, ADD COLUMN paused_because text,
  ADD COLUMN resumed_at timestamptz;
ALTER TABLE redrive.endpoint
  ADD COLUMN paused_at timestamptz, ADD COLUMN paused_by text, ADD COLUMN paused_because text;

-- The gate of something that may shut tasks out. Row locks that are shared let each other through for ever, and whoever wants to
-- lift a pause under load would never have their turn. So claims go through the gate side by side, and stop at it when somebody
-- waits there to pass alone: advisory locks are given in the order of asking.
CREATE FUNCTION redrive.enter_gate(p_id uuid) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT pg_try_advisory_xact_lock_shared(1380271955, hashtext(p_id::text))
$$;
CREATE FUNCTION redrive.close_gate(p_id uuid) RETURNS void LANGUAGE sql VOLATILE AS $$
  SELECT pg_advisory_xact_lock(1380271955, hashtext(p_id::text))
$$;

-- Every claim asks which orgs are paused: normally none, and the index is empty.
CREATE INDEX org_paused ON redrive.org (org_id) WHERE paused_at IS NOT NULL;
CREATE INDEX endpoint_paused ON redrive.endpoint (org_id, id) WHERE paused_at IS NOT NULL AND deleted_at IS NULL;

-- Everybody sees that the installation is paused, and why; only its owners change that. The rest of the row is the engine's.
ALTER TABLE redrive.installation ENABLE ROW LEVEL SECURITY;
CREATE POLICY engine ON redrive.installation TO redrive_engine USING (true) WITH CHECK (true);
CREATE POLICY app_reads ON redrive.installation FOR SELECT TO redrive_app USING (true);
CREATE POLICY owners_change ON redrive.installation FOR UPDATE TO redrive_app
  USING (coalesce(current_setting('redrive.role', true), '') = 'OWNER');
GRANT SELECT (singleton, id, paused_at, paused_by, paused_because, resumed_at),
      UPDATE (paused_at, paused_by, paused_because, resumed_at) ON redrive.installation TO redrive_app;

-- What the whole installation holds is summed up without reading the other counters.
CREATE INDEX counter_held ON redrive.counter (org_id) WHERE name = 'task.held';

-- Until when the secret before the newest one signs too. (Not a secret itself, and so not sealed: a Redrive that does not know
-- the column goes on to sign with both.)
ALTER TABLE redrive.endpoint ADD COLUMN previous_secret_until timestamptz;

-- What was delivered to an endpoint, newest first: a task's id is made by the database, and tells its age.
CREATE INDEX task_of_endpoint ON redrive.task (org_id, endpoint_id, id) WHERE endpoint_id IS NOT NULL;
