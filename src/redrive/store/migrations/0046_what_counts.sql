-- What counts, and as what:
--   Time to delivery of a workflow's step begins when it may begin: a wait of an hour is no slow delivery. It is never negative, where a
--   clock was set back.
--   The pulse, by which alerts judge what goes on, leaves out the tests of endpoints, and how long it took of what a person sent again:
--   that it lay for a day says nothing of deliveries. It knows of deaths that say nothing of them either: see `unjudged`.

--   unjudged   of those that failed: skipped by a person, and notices that nobody could be told
ALTER TABLE redrive.pulse ADD COLUMN unjudged bigint NOT NULL DEFAULT 0;

CREATE OR REPLACE FUNCTION redrive.no_pulse(p_org uuid, p_minute timestamptz) RETURNS redrive.pulse LANGUAGE sql IMMUTABLE AS $$
  SELECT p_org, p_minute, 0::smallint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, array_fill(0::bigint, '{11}'), 0::bigint,
         array_fill(0::bigint, '{16}'), interval '0', 0::bigint
$$;

-- time_taken: from when a task could be done until it was.
CREATE FUNCTION redrive.time_taken(p_kind text, p_received_at timestamptz, p_begun_at timestamptz, p_done_at timestamptz) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT greatest(p_done_at - CASE p_kind WHEN 'step' THEN greatest(p_received_at, p_begun_at) ELSE p_received_at END, '0'::interval)
$$;

-- Tasks as they move: as in 0039, but for what is said above.
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
    SELECT org_id, state, retrying, test, at, tries, wait, sum(n)::int AS n, sum(retries) AS retried, sum(waited) AS waited,
           sum(n * attempts) AS tried
      FROM (SELECT org_id, state, attempts > 0 AND open AS retrying, is_test IS TRUE AS test, NULL::timestamptz AS at, NULL::int AS tries,
                   NULL::int AS wait, -1 AS n, NULL::int AS retries, NULL::interval AS waited, attempts FROM removed
            UNION ALL
            SELECT org_id, state, attempts > 0 AND open, is_test IS TRUE, updated_at, CASE WHEN NOT open THEN least(greatest(attempts, 1), 11) END,
                   CASE WHEN generation = 0 THEN width_bucket(took, v_bounds) + 1 END, 1,
                   greatest(attempts - 1, 0), CASE WHEN generation = 0 THEN took END, attempts
              FROM (SELECT a.*, CASE state WHEN 'succeeded' THEN redrive.time_taken(kind, received_at, begun_at, updated_at) END AS took FROM added a) a) d
     GROUP BY org_id, state, retrying, test, at, tries, wait ORDER BY org_id, at NULLS FIRST
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
    CONTINUE WHEN g.test OR v_redriven <> (g.tries IS NULL);  -- they were open and still are, or had ended before
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
      IF g.wait IS NOT NULL THEN
        v_pulse.waits[g.wait] := v_pulse.waits[g.wait] + g.n;
        v_pulse.waited := v_pulse.waited + g.waited;
      END IF;
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
                   width_bucket(took, v_bounds) + 1, took, attempts, greatest(attempts - 1, 0)
              FROM (SELECT a.*, CASE state WHEN 'succeeded' THEN redrive.time_taken(kind, received_at, begun_at, updated_at) END AS took FROM added a) a
             WHERE (attempts > 0 OR NOT open) AND is_test IS NOT TRUE) d
     GROUP BY 1, 2, 3, 4, 5, state, tries, wait
    HAVING state IS NOT NULL OR sum(attempts) <> 0 OR sum(retries) <> 0;
  END IF;
  RETURN NULL;
END $$;

-- Dead letters as they come: as in 0039, and those that say nothing of how deliveries go. A task that was redriven and died again is
-- another death: by then its letter has another generation.
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
  -- The row of the minute comes before the counters, as where tasks move.
  INSERT INTO redrive.pulse AS p (org_id, minute, shard, unjudged)
  SELECT d.org_id, date_bin(''1 minute'', d.created_at, ''epoch''), v_shard, count(*)
    FROM (%2$s) d JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
   WHERE (d.reason = ''skipped'' OR starts_with(d.event_type, ''redrive.'')) AND t.is_test IS NOT TRUE
   GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (org_id, minute, shard) DO UPDATE SET unjudged = p.unjudged + excluded.unjudged;
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
      ('moved', went || ' UNION ALL ' || came, 'SELECT a.org_id, a.task_id, a.created_at, a.reason, a.category, a.event_type FROM added a
        WHERE (a.org_id, a.task_id, a.generation) NOT IN (SELECT r.org_id, r.task_id, r.generation FROM removed r)'))
        AS v(name, changes, deaths) LOOP
    EXECUTE format('CREATE OR REPLACE FUNCTION redrive.count_%s_dead_letter() RETURNS trigger LANGUAGE plpgsql AS %L', t.name,
      format(counted, t.changes, t.deaths));
  END LOOP;
END $$;
