-- What must hold whoever writes: legal transitions, counters that follow the rows, one org per session.

CREATE FUNCTION redrive.refuse_transition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_old jsonb := to_jsonb(OLD);
  v_new jsonb := to_jsonb(NEW);
BEGIN
  RAISE EXCEPTION 'illegal transition of % %: % -> %', TG_TABLE_NAME, coalesce(v_old ->> 'id', v_old ->> 'task_id'),
    concat_ws(', fence ', v_old ->> 'state', v_old ->> 'fence'),
    concat_ws(', fence ', v_new ->> 'state', v_new ->> 'fence')
    USING ERRCODE = 'check_violation';
END $$;

-- The lists are core/lifecycle.py's; a test compares them. WHEN keeps the legal path free of any call.
-- A fence never goes back, a new lease always raises it, and only a new generation leaves death.
CREATE TRIGGER task_transition BEFORE UPDATE ON redrive.task FOR EACH ROW
  WHEN (CASE OLD.state
          WHEN 'waiting' THEN NEW.state NOT IN ('leased', 'waiting', 'held', 'dead') OR NEW.fence < OLD.fence
          WHEN 'leased' THEN NEW.state NOT IN ('succeeded', 'waiting', 'leased', 'held', 'dead') OR NEW.fence < OLD.fence
          WHEN 'held' THEN NEW.state NOT IN ('waiting', 'held', 'dead') OR NEW.fence < OLD.fence
          WHEN 'dead' THEN NEW.state NOT IN ('dead', 'waiting', 'held') OR NEW.fence < OLD.fence
                        OR (NEW.state <> 'dead' AND NEW.generation = OLD.generation)
          ELSE NEW.state <> OLD.state OR NEW.fence < OLD.fence END
        OR (NEW.state = 'leased' AND NEW.fence = OLD.fence))
  EXECUTE FUNCTION redrive.refuse_transition();
CREATE TRIGGER dead_letter_transition BEFORE UPDATE ON redrive.dead_letter FOR EACH ROW
  WHEN (OLD.state <> NEW.state AND (OLD.state || '>' || NEW.state) NOT IN (
    'open>replaying', 'open>resolved', 'open>ignored', 'open>deleted', 'replaying>resolved', 'replaying>open',
    'resolved>replaying', 'resolved>deleted', 'ignored>replaying', 'ignored>resolved', 'ignored>deleted'))
  EXECUTE FUNCTION redrive.refuse_transition();

-- Counters. One upsert per org, name and statement. A transaction counts in a shard that it has to itself until it ends:
-- a caller's own transaction may stay open long after an enqueue, and settling counts in another order than accepting.
-- Only when there are more transactions than shards do some of them wait for each other's rows.
CREATE FUNCTION redrive.own_shard() RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
  v_shards CONSTANT integer := 64;
  v_shard integer := pg_backend_pid() % v_shards;
BEGIN
  FOR i IN 1..v_shards LOOP
    EXIT WHEN pg_try_advisory_xact_lock(1380271954, v_shard);
    v_shard := (v_shard + 1) % v_shards;
  END LOOP;
  RETURN v_shard;
END $$;

-- The same trigger functions for each table that is counted, by what it is counted by. Of tasks the retry queue is
-- counted too: open ones that have failed before. Statements that often touch no row are asked first whether they did.
DO $$
DECLARE
  t record;
  upsert CONSTANT text := 'INSERT INTO redrive.counter AS c (org_id, name, shard, n)
    SELECT org_id, name, redrive.own_shard(), sum(n) FROM (%s) d
     GROUP BY org_id, name HAVING sum(n) <> 0 ORDER BY org_id, name
    ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n';
  always CONSTANT text := 'BEGIN %s; RETURN NULL; END';
  seldom CONSTANT text := 'BEGIN IF EXISTS (SELECT FROM added) THEN %s; END IF; RETURN NULL; END';
  rows_of text;
BEGIN
  FOR t IN SELECT * FROM (VALUES
      ('event', $q$CASE tasks WHEN 0 THEN 'event.inbox' ELSE 'event.routed' END$q$, false),
      ('task', $q$'task.' || state$q$, true),
      ('dead_letter', $q$'dead.' || state$q$, true)) AS v(name, counted, moves) LOOP
    rows_of := format('SELECT org_id, %s AS name, %%1$s AS n FROM %%2$s', t.counted);
    IF t.name = 'task' THEN
      rows_of := rows_of || $q$ UNION ALL SELECT org_id, 'retrying', %1$s FROM %2$s WHERE attempts > 0 AND open$q$;
    END IF;
    EXECUTE format('CREATE FUNCTION redrive.count_added_%s() RETURNS trigger LANGUAGE plpgsql AS %L', t.name,
      format(CASE t.name WHEN 'dead_letter' THEN seldom ELSE always END,
             format(upsert, format(rows_of, '1', 'added'))));
    EXECUTE format('CREATE TRIGGER count_added AFTER INSERT ON redrive.%1$I REFERENCING NEW TABLE AS added
      FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_added_%1$s()', t.name);
    CONTINUE WHEN NOT t.moves;
    EXECUTE format('CREATE FUNCTION redrive.count_moved_%s() RETURNS trigger LANGUAGE plpgsql AS %L', t.name,
      format(seldom, format(upsert, format(rows_of, '-1', 'removed') || ' UNION ALL ' || format(rows_of, '1', 'added'))));
    EXECUTE format('CREATE TRIGGER count_moved AFTER UPDATE ON redrive.%1$I
      REFERENCING OLD TABLE AS removed NEW TABLE AS added
      FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_moved_%1$s()', t.name);
  END LOOP;
END $$;

-- Row-level security. After SET LOCAL the setting is an empty string, not NULL, in later transactions: nullif.
CREATE FUNCTION redrive.current_org() RETURNS uuid LANGUAGE sql STABLE AS $$
  SELECT nullif(current_setting('redrive.org', true), '')::uuid
$$;

GRANT USAGE ON SCHEMA redrive TO redrive_app, redrive_engine, redrive_producer;
DO $$
DECLARE t record;
BEGIN
  FOR t IN SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id'
            WHERE c.relnamespace = 'redrive'::regnamespace AND c.relkind = 'r' LOOP
    EXECUTE format('ALTER TABLE redrive.%I ENABLE ROW LEVEL SECURITY', t.relname);
    EXECUTE format('ALTER TABLE redrive.%I FORCE ROW LEVEL SECURITY', t.relname);
    EXECUTE format('CREATE POLICY tenant ON redrive.%I TO redrive_app
      USING (org_id = (SELECT redrive.current_org())) WITH CHECK (org_id = (SELECT redrive.current_org()))', t.relname);
    EXECUTE format('CREATE POLICY engine ON redrive.%I TO redrive_engine USING (true) WITH CHECK (true)', t.relname);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE ON redrive.%I TO redrive_app, redrive_engine', t.relname);
  END LOOP;
END $$;
-- What was written down stays as it was written, and a key keeps its role and its hash.
REVOKE UPDATE ON redrive.event FROM redrive_app, redrive_engine;
REVOKE UPDATE ON redrive.audit, redrive.api_key FROM redrive_app;
GRANT UPDATE (revoked_at, last_used_at) ON redrive.api_key TO redrive_app;
GRANT SELECT, UPDATE ON redrive.installation TO redrive_engine;
GRANT SELECT ON redrive.schema_migration TO redrive_app, redrive_engine;
