-- What happened, kept on write for as long as people ask: by endpoint, event type and external system, and in all. Three tables: what a
-- statement changed is appended to the tally, a roller moves that into rollups and totals (sql/roll.sql), and a reader adds what is not
-- rolled yet. See docs/decisions/0020.

-- Deltas. A statement writes one row for each group of rows that it changed in the same way, and nobody waits for anybody: nothing is
-- updated here. Which numbers there are depends on what happened; the others are NULL, and take no room.
-- The minute is that of the rows, as in redrive.pulse. What is a test of an endpoint is in none of them.
CREATE TABLE redrive.tally (
  seq             bigint GENERATED ALWAYS AS IDENTITY,
  org_id          uuid NOT NULL,
  minute          timestamptz NOT NULL,
  endpoint_id     uuid,
  event_type      text,
  external_system text,
  created         integer,   -- events stored
  acked           integer,   -- events taken out of the inbox
  delivered       integer,   -- tasks that succeeded
  failed          integer,   -- tasks that died, whatever of
  tries           smallint,  -- of these two: how often they had been tried again, and one: the place in an array of 11
  retried         integer,   -- the sum of those retries
  untried         integer,   -- of those that died: without a try in their last generation
  wait            smallint,  -- of those that succeeded: how long it took since their event came, as a place among redrive.wait_bounds()
  waited          interval,  -- the sum of that
  redriven        integer,   -- tasks that a person (or their script) sent on its way again
  attempts        integer,   -- tries that ended, be it that their lease was lost
  retries         integer,   -- of these: those that were not the first
  deaths          integer,   -- dead letters, by the next two
  reason          text,
  category        text,
  breakers        integer    -- breakers that opened
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = -1,
        autovacuum_vacuum_cost_delay = 0);
ALTER TABLE redrive.tally REPLICA IDENTITY FULL;
CREATE INDEX tally_by_seq ON redrive.tally (seq);
CALL redrive.secure('tally');
GRANT SELECT, INSERT ON redrive.tally TO redrive_app, redrive_engine;
GRANT DELETE ON redrive.tally TO redrive_engine;

-- One row for what happened within a span from `at` on, to what one key names. `key` is '' where the dimension is 'all'; elsewhere '' is
-- for all those beyond the bound of keys of a day (see store/rollups.py). What has no endpoint, or no external system, is not in those.
CREATE TABLE redrive.rollup (
  org_id     uuid NOT NULL,
  dimension  text NOT NULL CHECK (dimension IN ('all', 'endpoint', 'event_type', 'external_system')),
  span       text NOT NULL CHECK (span IN ('minute', 'hour', 'day')),
  at         timestamptz NOT NULL,
  key        text NOT NULL,
  created    bigint NOT NULL,
  acked      bigint NOT NULL,
  delivered  bigint NOT NULL,
  failed     bigint NOT NULL,
  untried    bigint NOT NULL,
  redriven   bigint NOT NULL,
  attempts   bigint NOT NULL,
  retries    bigint NOT NULL,
  saved      bigint[] NOT NULL,  -- of those that were delivered: after 0, 1, … 9, and 10 or more retries
  retried    bigint NOT NULL,    -- the sum of these
  lost       bigint[] NOT NULL,  -- of those that died: after as many
  waits      bigint[] NOT NULL,  -- of those that were delivered: by how long it took
  waited     interval NOT NULL,
  PRIMARY KEY (org_id, dimension, span, at, key)
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05);
CALL redrive.secure('rollup');
GRANT SELECT ON redrive.rollup TO redrive_app;
GRANT SELECT, INSERT, UPDATE ON redrive.rollup TO redrive_engine;
GRANT SELECT, DELETE ON redrive.rollup TO redrive_janitor;
CREATE POLICY janitor_select ON redrive.rollup FOR SELECT TO redrive_janitor USING (true);
CREATE POLICY janitor_delete ON redrive.rollup FOR DELETE TO redrive_janitor USING (true);

-- The installation's totals, of all orgs, since this table is there. No n ever becomes less. See totals_of for the names.
CREATE TABLE redrive.total (
  name  text NOT NULL,
  slot  text NOT NULL,
  n     bigint NOT NULL,
  PRIMARY KEY (name, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
GRANT SELECT, INSERT, UPDATE ON redrive.total TO redrive_engine;

-- How far the tally is rolled: no row up to `done_to` is left in it, and none will come. Rows are numbered before their transactions
-- commit, so one with a lower number may be seen later. Of all numbers up to `next_to` it is known that their transactions are older
-- than `next_xid`: once all of those have ended, and what they left is rolled, that is the next mark.
-- No row: nothing was rolled yet. Without this whoever reads steps over all rows that were rolled while a snapshot is held open somewhere.
CREATE TABLE redrive.roll_mark (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  done_to   bigint NOT NULL,
  next_to   bigint NOT NULL,
  next_xid  xid8 NOT NULL,
  rolled_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
GRANT SELECT ON redrive.roll_mark TO redrive_app;
GRANT SELECT, INSERT, UPDATE ON redrive.roll_mark TO redrive_engine;

-- totals_of: what a row of the tally adds to the totals. Waits are told in microseconds.
CREATE FUNCTION redrive.totals_of(t redrive.tally) RETURNS TABLE (name text, slot text, n bigint)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT v.name, v.slot, v.n
    FROM (VALUES ('created', '', t.created::bigint), ('acked', '', t.acked), ('delivered', '', t.delivered), ('failed', '', t.failed),
                 ('redriven', '', t.redriven), ('attempts', '', t.attempts), ('retries', '', t.retries),
                 ('breakers', '', t.breakers), ('ended', t.tries::text, coalesce(t.delivered, t.failed)), ('retried', '', t.retried),
                 ('waits', t.wait::text, t.delivered), ('waited', '', (extract(epoch FROM t.waited) * 1000000)::bigint),
                 ('deaths', t.reason || '/' || t.category, t.deaths)) AS v(name, slot, n)
   WHERE v.n <> 0
$$;

-- Sums of the arrays, written out: see redrive.beat.
DO $$
DECLARE t record;
BEGIN
  FOR t IN SELECT * FROM (VALUES ('add_tries', 11), ('add_waits', 16)) AS v(name, slots) LOOP
    EXECUTE format('CREATE FUNCTION redrive.%I(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS %L', t.name,
      (SELECT 'SELECT ARRAY[' || string_agg(format('a[%1$s] + b[%1$s]', i), ', ') || ']' FROM generate_series(1, t.slots) i));
  END LOOP;
END $$;

-- in_slot: an array of so many, with n in one place and nothing elsewhere.
CREATE FUNCTION redrive.in_slot(p_place integer, n bigint, p_slots integer) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_place IS NULL OR n IS NULL THEN array_fill(0::bigint, ARRAY[p_slots])
              ELSE array_fill(0::bigint, ARRAY[p_place - 1]) || n || array_fill(0::bigint, ARRAY[p_slots - p_place]) END
$$;

-- unrolled: what is not in the rollups yet, in their columns.
CREATE VIEW redrive.unrolled WITH (security_invoker = true) AS
SELECT t.org_id, t.minute, t.endpoint_id, t.event_type, t.external_system,
       coalesce(t.created, 0)::bigint AS created, coalesce(t.acked, 0)::bigint AS acked, coalesce(t.delivered, 0)::bigint AS delivered,
       coalesce(t.failed, 0)::bigint AS failed, coalesce(t.untried, 0)::bigint AS untried, coalesce(t.redriven, 0)::bigint AS redriven,
       coalesce(t.attempts, 0)::bigint AS attempts, coalesce(t.retries, 0)::bigint AS retries,
       redrive.in_slot(t.tries, t.delivered, 11) AS saved,
       CASE WHEN t.delivered > 0 THEN coalesce(t.retried, 0) ELSE 0 END::bigint AS retried,
       redrive.in_slot(t.tries, t.failed, 11) AS lost, redrive.in_slot(t.wait, t.delivered, 16) AS waits,
       coalesce(t.waited, '0') AS waited
  FROM redrive.tally t
 WHERE t.seq > (SELECT coalesce(max(m.done_to), 0) FROM redrive.roll_mark m WHERE m.singleton)
   AND t.deaths IS NULL AND t.breakers IS NULL;
GRANT SELECT ON redrive.unrolled TO redrive_app, redrive_engine;

-- Events as they are stored: as in 0017, and into the tally.
CREATE OR REPLACE FUNCTION redrive.count_added_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO redrive.counter AS c (org_id, name, shard, n)
  SELECT org_id, name, redrive.own_shard(), sum(n)
    FROM (SELECT org_id, CASE WHEN tasks > 0 THEN 'event.routed' WHEN acked_at IS NULL THEN 'event.inbox'
                              ELSE 'event.acked' END AS name, 1 AS n FROM added
          UNION ALL SELECT org_id, 'event.bytes', octet_length(body) FROM added) d
   GROUP BY org_id, name HAVING sum(n) <> 0 ORDER BY org_id, name
  ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
  INSERT INTO redrive.pulse AS p (org_id, minute, shard, created, opened)
  SELECT org_id, date_bin('1 minute', received_at, 'epoch'), redrive.own_shard(), count(*), sum(tasks) FROM added
   GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (org_id, minute, shard) DO UPDATE SET created = p.created + excluded.created, opened = p.opened + excluded.opened;
  INSERT INTO redrive.tally (org_id, minute, event_type, external_system, created)
  SELECT org_id, date_bin('1 minute', received_at, 'epoch'), event_type, external_system, count(*) FROM added GROUP BY 1, 2, 3, 4;
  RETURN NULL;
END $$;

-- Events as they are acknowledged: as in 0011, and into the tally.
CREATE OR REPLACE FUNCTION redrive.count_moved_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM removed) THEN
    RETURN NULL;
  END IF;
  INSERT INTO redrive.counter AS c (org_id, name, shard, n)
  SELECT org_id, name, redrive.own_shard(), sum(n)
    FROM (SELECT org_id, CASE WHEN tasks > 0 THEN 'event.routed' WHEN acked_at IS NULL THEN 'event.inbox'
                              ELSE 'event.acked' END AS name, -1 AS n FROM removed
          UNION ALL
          SELECT org_id, CASE WHEN tasks > 0 THEN 'event.routed' WHEN acked_at IS NULL THEN 'event.inbox'
                              ELSE 'event.acked' END, 1 FROM added) d
   GROUP BY org_id, name HAVING sum(n) <> 0 ORDER BY org_id, name
  ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
  -- An event changes once, when it is acknowledged (see guard_event).
  INSERT INTO redrive.tally (org_id, minute, event_type, external_system, acked)
  SELECT org_id, date_bin('1 minute', acked_at, 'epoch'), event_type, external_system, count(*) FROM added GROUP BY 1, 2, 3, 4;
  RETURN NULL;
END $$;

-- Tasks as they move: as in 0017, and into the tally.
CREATE OR REPLACE FUNCTION redrive.count_moved_task() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  g          record;
  v_bounds   CONSTANT interval[] := redrive.wait_bounds();
  v_pulse    redrive.pulse;
  v_org      uuid;
  v_redriven boolean;
  v_orgs     uuid[];
  v_names    text[];
  v_changes  integer[];
  v_at       timestamptz;
  v_revived  boolean := false;
  v_ended    boolean := false;
  v_tried    bigint := 0;
BEGIN
  FOR g IN
    SELECT org_id, state, retrying, at, tries, wait, sum(n)::int AS n, sum(retries) AS retried, sum(waited) AS waited,
           sum(n * attempts) AS tried
      FROM (SELECT org_id, state, attempts > 0 AND open AS retrying, NULL::timestamptz AS at, NULL::int AS tries,
                   NULL::int AS wait, -1 AS n, NULL::int AS retries, NULL::interval AS waited, attempts FROM removed
            UNION ALL
            SELECT org_id, state, attempts > 0 AND open, updated_at, CASE WHEN NOT open THEN least(greatest(attempts, 1), 11) END,
                   CASE state WHEN 'succeeded' THEN width_bucket(updated_at - received_at, v_bounds) + 1 END, 1,
                   greatest(attempts - 1, 0), CASE state WHEN 'succeeded' THEN updated_at - received_at END, attempts FROM added) d
     GROUP BY org_id, state, retrying, at, tries, wait ORDER BY org_id, at NULLS FIRST
  LOOP
    v_orgs := v_orgs || g.org_id;
    v_names := v_names || ('task.' || g.state);
    v_changes := v_changes || g.n;
    v_at := greatest(v_at, g.at);
    v_tried := v_tried + g.tried;
    IF g.retrying THEN
      v_orgs := v_orgs || g.org_id;
      v_names := v_names || 'retrying'::text;
      v_changes := v_changes || g.n;
    END IF;
    IF v_org IS DISTINCT FROM g.org_id THEN
      v_org := g.org_id;
      v_redriven := false;
    END IF;
    IF g.at IS NULL THEN
      v_redriven := v_redriven OR g.state IN ('succeeded', 'dead');
      v_revived := v_revived OR v_redriven;
      CONTINUE;
    END IF;
    CONTINUE WHEN v_redriven <> (g.tries IS NULL);  -- they were open and still are, or had ended before
    IF (v_pulse.org_id, v_pulse.minute) IS DISTINCT FROM (g.org_id, date_bin('1 minute', g.at, 'epoch')) THEN
      PERFORM redrive.beat(v_pulse);
      v_pulse := redrive.no_pulse(g.org_id, date_bin('1 minute', g.at, 'epoch'));
    END IF;
    IF v_redriven THEN
      v_pulse.opened := v_pulse.opened + g.n;
      CONTINUE;
    END IF;
    v_ended := true;
    v_pulse.retries[g.tries] := v_pulse.retries[g.tries] + g.n;
    v_pulse.retried := v_pulse.retried + g.retried;
    IF g.state = 'succeeded' THEN
      v_pulse.delivered := v_pulse.delivered + g.n;
      v_pulse.waits[g.wait] := v_pulse.waits[g.wait] + g.n;
      v_pulse.waited := v_pulse.waited + g.waited;
    ELSE
      v_pulse.failed := v_pulse.failed + g.n;
    END IF;
  END LOOP;
  IF v_orgs IS NULL THEN
    RETURN NULL;
  END IF;
  PERFORM redrive.beat(v_pulse);
  INSERT INTO redrive.counter AS c (org_id, name, shard, n)
  SELECT org_id, name, redrive.own_shard(), sum(n) FROM unnest(v_orgs, v_names, v_changes) AS d(org_id, name, n)
   GROUP BY org_id, name HAVING sum(n) <> 0 ORDER BY org_id, name
  ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
  -- A claim, and whatever else neither ends nor tries anything, is not in the tally. Most statements are like that.
  IF v_revived THEN
    INSERT INTO redrive.tally (org_id, minute, endpoint_id, event_type, external_system, redriven)
    SELECT org_id, date_bin('1 minute', updated_at, 'epoch'), endpoint_id, event_type, external_system, count(*)
      FROM added WHERE open AND is_test IS NOT TRUE GROUP BY 1, 2, 3, 4, 5;
  ELSIF v_ended OR v_tried <> 0 THEN
    -- What was added to `attempts` are the tries. Rows are not compared one by one with what they were: transition tables have no
    -- index, and the engine's connections join in loops only. What the statement found is taken off, group by group, instead.
    INSERT INTO redrive.tally (org_id, minute, endpoint_id, event_type, external_system, delivered, failed, tries, retried, untried,
                               wait, waited, attempts, retries)
    SELECT org_id, minute, endpoint_id, event_type, external_system,
           CASE state WHEN 'succeeded' THEN count(*) END, CASE state WHEN 'dead' THEN count(*) END, tries, sum(retried),
           sum(untried), wait, sum(waited), sum(attempts), sum(retries)
      FROM (SELECT org_id, date_bin('1 minute', v_at, 'epoch') AS minute, endpoint_id, event_type, external_system, NULL AS state,
                   NULL::int AS tries, NULL::int AS retried, NULL::int AS untried, NULL::int AS wait, NULL::interval AS waited,
                   -attempts AS attempts, 1 - attempts AS retries
              FROM removed WHERE attempts > 0 AND is_test IS NOT TRUE
            UNION ALL
            SELECT org_id, date_bin('1 minute', updated_at, 'epoch'), endpoint_id, event_type, external_system,
                   CASE WHEN NOT open THEN state END, CASE WHEN NOT open THEN least(greatest(attempts, 1), 11) END,
                   CASE WHEN NOT open THEN greatest(attempts - 1, 0) END, CASE WHEN NOT open AND attempts = 0 THEN 1 END,
                   CASE state WHEN 'succeeded' THEN width_bucket(updated_at - received_at, v_bounds) + 1 END,
                   CASE state WHEN 'succeeded' THEN updated_at - received_at END, attempts, greatest(attempts - 1, 0)
              FROM added WHERE (attempts > 0 OR NOT open) AND is_test IS NOT TRUE) d
     GROUP BY 1, 2, 3, 4, 5, state, tries, wait
    HAVING state IS NOT NULL OR sum(attempts) <> 0 OR sum(retries) <> 0;
  END IF;
  RETURN NULL;
END $$;

-- Dead letters as they come: as in 0020, and into the tally. A task that was redriven and died again is another death: by then its letter
-- has another generation.
DO $$
DECLARE
  t record;
  counted CONSTANT text := '
DECLARE
  v_shard smallint;
BEGIN
  IF NOT EXISTS (SELECT FROM added) THEN
    RETURN NULL;
  END IF;
  v_shard := redrive.own_shard();
  INSERT INTO redrive.counter AS c (org_id, name, shard, n)
  SELECT org_id, ''dead.'' || state, v_shard, sum(n) FROM (%1$s) d
   GROUP BY org_id, state HAVING sum(n) <> 0 ORDER BY org_id, state
  ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
  INSERT INTO redrive.letter_count AS c (org_id, state, fingerprint, shard, n)
  SELECT org_id, state, fingerprint, v_shard, sum(n) FROM (%1$s) d
   GROUP BY org_id, state, fingerprint HAVING sum(n) <> 0 ORDER BY org_id, state, fingerprint
  ON CONFLICT (org_id, state, fingerprint, shard) DO UPDATE SET n = c.n + excluded.n;
  INSERT INTO redrive.tally (org_id, minute, reason, category, deaths)
  SELECT d.org_id, date_bin(''1 minute'', d.created_at, ''epoch''), d.reason, d.category, count(*)
    FROM (%2$s) d JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
   WHERE t.is_test IS NOT TRUE
   GROUP BY 1, 2, 3, 4;
  RETURN NULL;
END';
  came CONSTANT text := 'SELECT org_id, state, fingerprint, 1 AS n FROM added';
  went CONSTANT text := 'SELECT org_id, state, fingerprint, -1 AS n FROM removed';
BEGIN
  FOR t IN SELECT * FROM (VALUES
      ('added', came, 'SELECT * FROM added'),
      ('moved', went || ' UNION ALL ' || came, 'SELECT a.org_id, a.task_id, a.created_at, a.reason, a.category FROM added a
        WHERE (a.org_id, a.task_id, a.generation) NOT IN (SELECT r.org_id, r.task_id, r.generation FROM removed r)'))
        AS v(name, changes, deaths) LOOP
    EXECUTE format('CREATE OR REPLACE FUNCTION redrive.count_%s_dead_letter() RETURNS trigger LANGUAGE plpgsql AS %L', t.name,
      format(counted, t.changes, t.deaths));
  END LOOP;
END $$;
