-- The role too is checked by the database: members read, and only some roles change anything.

CREATE FUNCTION redrive.may_change() RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT coalesce(current_setting('redrive.role', true), '') IN ('OWNER', 'ADMIN', 'IT_MANAGER')
$$;

-- secure: what every tenant table must have. Migrations call it for each table they add.
CREATE PROCEDURE redrive.secure(p_table text) LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('ALTER TABLE redrive.%I ENABLE ROW LEVEL SECURITY', p_table);
  EXECUTE format('ALTER TABLE redrive.%I FORCE ROW LEVEL SECURITY', p_table);
  EXECUTE format('CREATE POLICY tenant ON redrive.%I TO redrive_app
    USING (org_id = (SELECT redrive.current_org())) WITH CHECK (org_id = (SELECT redrive.current_org()))', p_table);
  EXECUTE format('CREATE POLICY engine ON redrive.%I TO redrive_engine USING (true) WITH CHECK (true)', p_table);
  CALL redrive.secure_changes(p_table);
END $$;

-- secure_changes: restrictive, so that it holds beside whatever else lets a row through.
CREATE PROCEDURE redrive.secure_changes(p_table text) LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE POLICY changers_add ON redrive.%I AS RESTRICTIVE FOR INSERT TO redrive_app
    WITH CHECK ((SELECT redrive.may_change()))', p_table);
  EXECUTE format('CREATE POLICY changers_change ON redrive.%I AS RESTRICTIVE FOR UPDATE TO redrive_app
    USING ((SELECT redrive.may_change()))', p_table);
  EXECUTE format('CREATE POLICY changers_remove ON redrive.%I AS RESTRICTIVE FOR DELETE TO redrive_app
    USING ((SELECT redrive.may_change()))', p_table);
END $$;

REVOKE ALL ON PROCEDURE redrive.secure, redrive.secure_changes FROM PUBLIC;

DO $$
DECLARE t record;
BEGIN
  FOR t IN SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id'
            WHERE c.relnamespace = 'redrive'::regnamespace AND c.relkind = 'r' LOOP
    CALL redrive.secure_changes(t.relname);
  END LOOP;
END $$;

-- From where somebody acted: an address and a way in (api, page, command).
ALTER TABLE redrive.audit ADD COLUMN source text;
-- What a key is limited to, whatever its role.
ALTER TABLE redrive.api_key ADD COLUMN scope text CHECK (scope IN ('produce', 'read'));
