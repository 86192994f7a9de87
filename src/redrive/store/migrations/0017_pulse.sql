-- What happened, per minute: the numbers behind charts and metrics, kept on write and never counted on read.

-- One row for an org, a minute and a shard, as the counters have them (see own_shard). The minute is that of the rows that
-- changed, not of the wall clock. The janitor folds what is old: see fold_pulse.sql.
--   created    events stored
--   opened     tasks that began to be open: made for an event, or redriven
--   delivered  tasks that succeeded
--   failed     tasks that died, by a decision or because a person skipped them
--   retries    of those that ended: how many had been tried again 0, 1, … 9, and 10 or more times (in their last generation,
--              in which being redriven counts as one)
--   retried    the sum of these
--   waits      of those that succeeded: how many took so long since their event came in, by redrive.wait_bounds()
--   waited     the sum of these
-- Open tasks now, less what opened, plus what ended since, were open then.
CREATE TABLE redrive.pulse (
  org_id     uuid NOT NULL,
  minute     timestamptz NOT NULL,  -- '-infinity': all that is too old to be shown
  shard      smallint NOT NULL,     -- -1: folded
  created    bigint NOT NULL DEFAULT 0,
  opened     bigint NOT NULL DEFAULT 0,
  delivered  bigint NOT NULL DEFAULT 0,
  failed     bigint NOT NULL DEFAULT 0,
  retries    bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0,0,0}',
  retried    bigint NOT NULL DEFAULT 0,
  waits      bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}',
  waited     interval NOT NULL DEFAULT '0',
  PRIMARY KEY (org_id, minute, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
CALL redrive.secure('pulse');
GRANT SELECT, INSERT, UPDATE ON redrive.pulse TO redrive_app, redrive_engine;
GRANT SELECT, INSERT, UPDATE, DELETE ON redrive.pulse TO redrive_janitor;
CREATE POLICY janitor_select ON redrive.pulse FOR SELECT TO redrive_janitor USING (true);
CREATE POLICY janitor_insert ON redrive.pulse FOR INSERT TO redrive_janitor WITH CHECK (true);
CREATE POLICY janitor_update ON redrive.pulse FOR UPDATE TO redrive_janitor USING (true);
CREATE POLICY janitor_delete ON redrive.pulse FOR DELETE TO redrive_janitor USING (true);

-- The upper ends of all waits but the last, which has none. core/pulse.py says the same; a test compares them.
CREATE FUNCTION redrive.wait_bounds() RETURNS interval[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ARRAY['0.1 s', '0.25 s', '0.5 s', '1 s', '2.5 s', '5 s', '10 s', '30 s', '1 min', '5 min', '15 min', '1 h', '6 h', '1 day',
               '7 days']::interval[]
$$;

-- beat: add to one minute of an org; nothing where no org is named. The sums are written out: to unnest two arrays and gather
-- them again would take longer than all the rest.
DO $$
DECLARE
  sums CONSTANT text := (
    SELECT format('retries = ARRAY[%s], waits = ARRAY[%s]',
                  string_agg(format('p.retries[%1$s] + excluded.retries[%1$s]', i), ', ') FILTER (WHERE i <= 11),
                  string_agg(format('p.waits[%1$s] + excluded.waits[%1$s]', i), ', ')) FROM generate_series(1, 16) i);
BEGIN
  EXECUTE format('CREATE FUNCTION redrive.beat(redrive.pulse) RETURNS void LANGUAGE plpgsql AS %L', format($f$
BEGIN
  IF $1.org_id IS NULL THEN
    RETURN;
  END IF;
  INSERT INTO redrive.pulse AS p (org_id, minute, shard, opened, delivered, failed, retries, retried, waits, waited)
  VALUES ($1.org_id, $1.minute, redrive.own_shard(), $1.opened, $1.delivered, $1.failed, $1.retries, $1.retried, $1.waits, $1.waited)
  ON CONFLICT (org_id, minute, shard) DO UPDATE SET
    opened = p.opened + excluded.opened, delivered = p.delivered + excluded.delivered, failed = p.failed + excluded.failed, %s,
    retried = p.retried + excluded.retried, waited = p.waited + excluded.waited;
END $f$, sums));
END $$;

CREATE FUNCTION redrive.no_pulse(p_org uuid, p_minute timestamptz) RETURNS redrive.pulse LANGUAGE sql IMMUTABLE AS $$
  SELECT p_org, p_minute, 0::smallint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, array_fill(0::bigint, '{11}'), 0::bigint,
         array_fill(0::bigint, '{16}'), interval '0'
$$;

-- Events as they are stored, with the tasks they are fanned out to: the same statement makes these.
-- The counters are those of 0011.
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
  RETURN NULL;
END $$;

-- Tasks as they move. No statement both ends tasks and redrives others, and none touches one that stays as it ended: where
-- some had ended before, those that are open now were redriven.
-- All is gathered in one pass over what changed. The minute's row comes before the counters of tasks (those of 0002), here as
-- when an event is stored: where transactions have to share a shard, none waits for another in a ring.
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
BEGIN
  FOR g IN
    SELECT org_id, state, retrying, at, tries, wait, sum(n)::int AS n, sum(retries) AS retried, sum(waited) AS waited
      FROM (SELECT org_id, state, attempts > 0 AND open AS retrying, NULL::timestamptz AS at, NULL::int AS tries,
                   NULL::int AS wait, -1 AS n, NULL::int AS retries, NULL::interval AS waited FROM removed
            UNION ALL
            SELECT org_id, state, attempts > 0 AND open, updated_at, CASE WHEN NOT open THEN least(greatest(attempts, 1), 11) END,
                   CASE state WHEN 'succeeded' THEN width_bucket(updated_at - received_at, v_bounds) + 1 END, 1,
                   greatest(attempts - 1, 0), CASE state WHEN 'succeeded' THEN updated_at - received_at END FROM added) d
     GROUP BY org_id, state, retrying, at, tries, wait ORDER BY org_id, at NULLS FIRST
  LOOP
    v_orgs := v_orgs || g.org_id;
    v_names := v_names || ('task.' || g.state);
    v_changes := v_changes || g.n;
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
  RETURN NULL;
END $$;
