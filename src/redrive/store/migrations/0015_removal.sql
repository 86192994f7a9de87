-- What the janitor may see and remove besides.

-- The archive keeps edits with their events.
GRANT SELECT ON redrive.edit TO redrive_janitor;
CREATE POLICY janitor_select ON redrive.edit FOR SELECT TO redrive_janitor USING (true);

-- Operations that ended long ago go, with their items.
CREATE INDEX operation_ended ON redrive.operation (org_id, finished_at) WHERE finished_at IS NOT NULL;
GRANT SELECT, DELETE ON redrive.operation, redrive.operation_item TO redrive_janitor;
DO $$
DECLARE t record;
BEGIN
  FOR t IN SELECT v.name, c.command FROM unnest(ARRAY['operation', 'operation_item']) AS v(name),
                  unnest(ARRAY['SELECT', 'DELETE']) AS c(command) LOOP
    EXECUTE format('CREATE POLICY %I ON redrive.%I FOR %s TO redrive_janitor USING (true)', 'janitor_' || lower(t.command), t.name,
                   t.command);
  END LOOP;
END $$;
