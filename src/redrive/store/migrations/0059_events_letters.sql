-- Dead letters are found by their event and by its correlation id; everybody sees the installation's default policy.

GRANT SELECT (default_policy) ON redrive.installation TO redrive_app;
GRANT SELECT (singleton, default_policy) ON redrive.installation TO redrive_janitor;
CREATE POLICY janitor_reads ON redrive.installation FOR SELECT TO redrive_janitor USING (true);

ALTER TABLE redrive.dead_letter ADD COLUMN correlation_id text;  -- of its event
ALTER TABLE redrive.dead_letter DISABLE TRIGGER USER;
-- By the engine, which sees those of all orgs: row-level security hides them from the owner of the schema.
SET LOCAL ROLE redrive_engine;
UPDATE redrive.dead_letter d SET correlation_id = e.correlation_id
  FROM redrive.event e WHERE e.org_id = d.org_id AND e.id = d.event_id;
RESET ROLE;
ALTER TABLE redrive.dead_letter ENABLE TRIGGER USER;
CREATE INDEX dead_letter_by_event ON redrive.dead_letter (org_id, state, event_id, created_at, task_id);
CREATE INDEX dead_letter_by_correlation ON redrive.dead_letter (org_id, state, correlation_id, created_at, task_id);
ALTER TABLE redrive.dead_letter ALTER COLUMN event_id SET (n_distinct = -1), ALTER COLUMN correlation_id SET (n_distinct = -1);

-- Many statements write dead letters, and each would have to look the event up.
CREATE FUNCTION redrive.name_correlation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.correlation_id := (SELECT e.correlation_id FROM redrive.event e WHERE e.org_id = NEW.org_id AND e.id = NEW.event_id);
  RETURN NEW;
END $$;
CREATE TRIGGER dead_letter_correlation BEFORE INSERT ON redrive.dead_letter FOR EACH ROW EXECUTE FUNCTION redrive.name_correlation();
