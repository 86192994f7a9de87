-- Time to delivery is kept finely enough that percentiles are within 5 % of the true value, and outcomes are counted per event, too.
--   Durations fall into slots at most 5 % wide, from a millisecond to 30 days. Only slots that hold something are stored: a row has
--   the slots and, in the same order, how many deliveries took so long (wait_counts) and how many of these needed no retry (wait_firsts).
--   There is one source: the rollups. The pulse keeps no distributions any more.
--   An event that goes to several endpoints ends once, when its last task ends. See docs/decisions/0028.

DROP FUNCTION redrive.wait_bounds();
-- wait_bounds: the upper ends of all slots but the last, which has none, in seconds. core/pulse.py says the same; a test compares them.
CREATE FUNCTION redrive.wait_bounds() RETURNS float8[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT '{
    0.001, 0.001049, 0.0011, 0.001153, 0.001209, 0.001268, 0.00133, 0.001394, 0.001462, 0.001533, 0.001608, 0.001686, 0.001768, 0.001854,
    0.001944, 0.002038, 0.002137, 0.002241, 0.00235, 0.002465, 0.002584, 0.00271, 0.002842, 0.00298, 0.003125, 0.003277, 0.003436, 0.003603,
    0.003779, 0.003962, 0.004155, 0.004357, 0.004569, 0.004791, 0.005024, 0.005268, 0.005524, 0.005793, 0.006074, 0.00637, 0.006679,
    0.007004, 0.007345, 0.007702, 0.008076, 0.008469, 0.008881, 0.009313, 0.009765, 0.01024, 0.01074, 0.01126, 0.01181, 0.01238, 0.01298,
    0.01362, 0.01428, 0.01497, 0.0157, 0.01646, 0.01726, 0.0181, 0.01898, 0.01991, 0.02087, 0.02189, 0.02295, 0.02407, 0.02524, 0.02647,
    0.02775, 0.0291, 0.03052, 0.032, 0.03356, 0.03519, 0.0369, 0.03869, 0.04057, 0.04255, 0.04462, 0.04678, 0.04906, 0.05144, 0.05395,
    0.05657, 0.05932, 0.0622, 0.06523, 0.0684, 0.07172, 0.07521, 0.07887, 0.0827, 0.08673, 0.09094, 0.09536, 0.1, 0.1047, 0.1096, 0.1147,
    0.1201, 0.1257, 0.1316, 0.1378, 0.1443, 0.151, 0.1581, 0.1655, 0.1733, 0.1814, 0.1899, 0.1988, 0.2081, 0.2179, 0.2281, 0.2388, 0.25,
    0.2618, 0.2742, 0.2872, 0.3008, 0.315, 0.3299, 0.3455, 0.3618, 0.3789, 0.3969, 0.4156, 0.4353, 0.4559, 0.4774, 0.5, 0.5236, 0.5484,
    0.5743, 0.6015, 0.63, 0.6598, 0.691, 0.7236, 0.7579, 0.7937, 0.8312, 0.8706, 0.9117, 0.9548, 1, 1.047, 1.096, 1.147, 1.201, 1.257,
    1.316, 1.378, 1.443, 1.51, 1.581, 1.655, 1.733, 1.814, 1.899, 1.988, 2.081, 2.179, 2.281, 2.388, 2.5, 2.618, 2.742, 2.872, 3.008, 3.15,
    3.299, 3.455, 3.618, 3.789, 3.969, 4.156, 4.353, 4.559, 4.774, 5, 5.236, 5.484, 5.743, 6.015, 6.3, 6.598, 6.91, 7.236, 7.579, 7.937,
    8.312, 8.706, 9.117, 9.548, 10, 10.49, 11, 11.54, 12.11, 12.7, 13.32, 13.97, 14.65, 15.37, 16.12, 16.91, 17.74, 18.61, 19.52, 20.47,
    21.47, 22.52, 23.63, 24.78, 25.99, 27.27, 28.6, 30, 31.42, 32.9, 34.46, 36.09, 37.8, 39.59, 41.46, 43.42, 45.47, 47.62, 49.87, 52.23,
    54.7, 57.29, 60, 62.91, 65.96, 69.16, 72.51, 76.02, 79.71, 83.57, 87.62, 91.87, 96.32, 101, 105.9, 111, 116.4, 122, 128, 134.2, 140.7,
    147.5, 154.6, 162.1, 170, 178.2, 186.9, 195.9, 205.4, 215.4, 225.8, 236.8, 248.3, 260.3, 272.9, 286.1, 300, 314.7, 330.1, 346.2, 363.2,
    380.9, 399.6, 419.1, 439.6, 461.1, 483.7, 507.4, 532.2, 558.2, 585.5, 614.2, 644.2, 675.7, 708.8, 743.5, 779.8, 818, 858, 900, 944.1,
    990.3, 1039, 1090, 1143, 1199, 1258, 1319, 1384, 1452, 1523, 1597, 1675, 1757, 1844, 1934, 2028, 2128, 2232, 2341, 2456, 2576, 2702,
    2835, 2973, 3119, 3272, 3432, 3600, 3774, 3956, 4147, 4347, 4557, 4777, 5008, 5250, 5503, 5769, 6047, 6339, 6645, 6966, 7302, 7655,
    8025, 8412, 8818, 9244, 9690, 10160, 10650, 11160, 11700, 12270, 12860, 13480, 14130, 14810, 15530, 16280, 17060, 17890, 18750, 19660,
    20610, 21600, 22660, 23770, 24930, 26150, 27430, 28780, 30180, 31660, 33210, 34840, 36540, 38330, 40210, 42180, 44240, 46410, 48680,
    51070, 53570, 56190, 58940, 61830, 64860, 68030, 71360, 74860, 78520, 82370, 86400, 90600, 95000, 99620, 104500, 109500, 114900, 120400,
    126300, 132400, 138900, 145600, 152700, 160100, 167900, 176100, 184600, 193600, 203000, 212900, 223200, 234100, 245500, 257400, 269900,
    283000, 296800, 311200, 326300, 342200, 358800, 376300, 394600, 413700, 433800, 454900, 477000, 500200, 524500, 550000, 576800, 604800,
    633900, 664300, 696300, 729700, 764800, 801600, 840100, 880500, 922800, 967100, 1.014e+06, 1.062e+06, 1.113e+06, 1.167e+06, 1.223e+06,
    1.282e+06, 1.343e+06, 1.408e+06, 1.476e+06, 1.547e+06, 1.621e+06, 1.699e+06, 1.78e+06, 1.866e+06, 1.956e+06, 2.05e+06, 2.148e+06,
    2.251e+06, 2.36e+06, 2.473e+06, 2.592e+06}'::float8[]
$$;

-- NULL: the only task of its event. What accept stored before this column was there counts as that.
ALTER TABLE redrive.task ADD COLUMN has_siblings boolean;

ALTER TABLE redrive.pulse DROP COLUMN retries, DROP COLUMN retried, DROP COLUMN waits, DROP COLUMN waited;
DROP FUNCTION redrive.beat(redrive.pulse);
DROP FUNCTION redrive.no_pulse(uuid, timestamptz);

DROP VIEW redrive.unrolled;
DROP FUNCTION redrive.totals_of(redrive.tally);
ALTER TABLE redrive.tally DROP COLUMN wait;
ALTER TABLE redrive.tally
  ADD COLUMN wait_slots       smallint[],  -- of those that succeeded: the slots of redrive.wait_bounds(), from 0,
  ADD COLUMN wait_counts      integer[],   -- and how many took so long
  ADD COLUMN events_delivered integer,     -- events whose last task ended: none of their tasks is dead
  ADD COLUMN events_failed    integer,     -- at least one is
  ADD COLUMN events_redriven  integer;     -- events that had ended and have an open task again

-- How long deliveries took was kept too coarsely to be of use here; from now on it is known.
ALTER TABLE redrive.rollup DROP COLUMN waits;
ALTER TABLE redrive.rollup
  ADD COLUMN wait_slots       smallint[] NOT NULL DEFAULT '{}',
  ADD COLUMN wait_counts      bigint[]   NOT NULL DEFAULT '{}',
  ADD COLUMN wait_firsts      bigint[]   NOT NULL DEFAULT '{}',
  ADD COLUMN events_delivered bigint     NOT NULL DEFAULT 0,
  ADD COLUMN events_failed    bigint     NOT NULL DEFAULT 0,
  ADD COLUMN events_redriven  bigint     NOT NULL DEFAULT 0;
DROP FUNCTION redrive.add_waits(bigint[], bigint[]);
SET LOCAL ROLE redrive_engine;
UPDATE redrive.rollup SET waited = '0', events_delivered = delivered, events_failed = failed, events_redriven = redriven;
UPDATE redrive.total SET n = 0 WHERE name IN ('waits', 'waited');
INSERT INTO redrive.total (name, slot, n)
SELECT 'events_' || name, '', n FROM redrive.total WHERE name IN ('delivered', 'failed', 'redriven');
RESET ROLE;

-- totals_of: what a row of the tally adds to the totals. Waits are in microseconds.
CREATE FUNCTION redrive.totals_of(t redrive.tally) RETURNS TABLE (name text, slot text, n bigint)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT v.name, v.slot, v.n
    FROM (VALUES ('created', '', t.created::bigint), ('acked', '', t.acked), ('delivered', '', t.delivered), ('failed', '', t.failed),
                 ('redriven', '', t.redriven), ('attempts', '', t.attempts), ('retries', '', t.retries),
                 ('events_delivered', '', t.events_delivered), ('events_failed', '', t.events_failed),
                 ('events_redriven', '', t.events_redriven),
                 ('breakers', '', t.breakers), ('ended', t.tries::text, coalesce(t.delivered, t.failed)), ('retried', '', t.retried),
                 ('waited', '', (extract(epoch FROM t.waited) * 1000000)::bigint),
                 ('waited_first', '', CASE t.tries WHEN 1 THEN (extract(epoch FROM t.waited) * 1000000)::bigint END),
                 ('deaths', t.reason || '/' || t.category, t.deaths)) AS v(name, slot, n)
   WHERE v.n <> 0
  UNION ALL
  SELECT k.name, w.slot::text, w.n
    FROM unnest(t.wait_slots, t.wait_counts) AS w(slot, n), (VALUES ('waits', true), ('waits_first', t.tries = 1)) AS k(name, counts)
   WHERE k.counts
$$;

-- unrolled: what is not in the rollups yet, in their columns.
CREATE VIEW redrive.unrolled WITH (security_invoker = true) AS
SELECT t.org_id, t.minute, t.endpoint_id, t.event_type, t.external_system,
       coalesce(t.created, 0)::bigint AS created, coalesce(t.acked, 0)::bigint AS acked, coalesce(t.delivered, 0)::bigint AS delivered,
       coalesce(t.failed, 0)::bigint AS failed, coalesce(t.untried, 0)::bigint AS untried, coalesce(t.redriven, 0)::bigint AS redriven,
       coalesce(t.attempts, 0)::bigint AS attempts, coalesce(t.retries, 0)::bigint AS retries,
       redrive.in_slot(t.tries, t.delivered, 11) AS saved,
       CASE WHEN t.delivered > 0 THEN coalesce(t.retried, 0) ELSE 0 END::bigint AS retried,
       redrive.in_slot(t.tries, t.failed, 11) AS lost, t.wait_slots, t.wait_counts::bigint[] AS wait_counts,
       CASE WHEN t.tries = 1 THEN t.wait_counts::bigint[] END AS wait_firsts,
       coalesce(t.waited, '0') AS waited, coalesce(t.events_delivered, 0)::bigint AS events_delivered,
       coalesce(t.events_failed, 0)::bigint AS events_failed, coalesce(t.events_redriven, 0)::bigint AS events_redriven
  FROM redrive.tally t
 WHERE t.seq > (SELECT coalesce(max(m.done_to), 0) FROM redrive.roll_mark m WHERE m.singleton)
   AND t.deaths IS NULL AND t.breakers IS NULL;
GRANT SELECT ON redrive.unrolled TO redrive_app, redrive_engine;

-- Tasks as they move: as in 0046, with fine durations, and events that end with the last of several tasks.
CREATE OR REPLACE FUNCTION redrive.count_moved_task() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  g           record;
  v_bounds    CONSTANT float8[] := redrive.wait_bounds();
  v_org       uuid;
  v_redriven  boolean;
  v_orgs      uuid[];
  v_names     text[];
  v_changes   integer[];
  v_at        timestamptz;
  v_revived   boolean := false;
  v_ended     boolean := false;
  v_siblings  boolean := false;
  v_tried     bigint := 0;
  v_in_org    uuid[];         -- by these four, what the pulse takes
  v_in_minute timestamptz[];
  v_opened    integer[];
  v_delivered integer[];
  v_failed    integer[];
BEGIN
  FOR g IN
    SELECT org_id, state, retrying, test, at, minute, ended, sum(n)::int AS n, sum(n * attempts) AS tried, count(has_siblings) > 0 AS siblings
      FROM (SELECT org_id, state, attempts > 0 AND open AS retrying, is_test IS TRUE AS test, NULL::timestamptz AS at,
                   NULL::timestamptz AS minute, NULL::boolean AS ended, -1 AS n, attempts, has_siblings FROM removed
            UNION ALL
            SELECT org_id, state, attempts > 0 AND open, is_test IS TRUE, updated_at, date_bin('1 minute', updated_at, 'epoch'), NOT open, 1,
                   attempts, has_siblings FROM added) d
     GROUP BY org_id, state, retrying, test, at, minute, ended ORDER BY org_id, at NULLS FIRST
  LOOP
    v_orgs := v_orgs || g.org_id;
    v_names := v_names || ('task.' || g.state);
    v_changes := v_changes || g.n;
    v_at := greatest(v_at, g.at);
    v_tried := v_tried + g.tried;
    v_siblings := v_siblings OR g.siblings;
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
    CONTINUE WHEN g.test OR v_redriven = g.ended;  -- they were open and still are, or had ended before
    v_ended := v_ended OR g.ended;
    v_in_org := v_in_org || g.org_id;
    v_in_minute := v_in_minute || g.minute;
    v_opened := v_opened || CASE WHEN g.ended THEN 0 ELSE g.n END;
    v_delivered := v_delivered || CASE WHEN g.state = 'succeeded' THEN g.n ELSE 0 END;
    v_failed := v_failed || CASE WHEN g.state = 'dead' THEN g.n ELSE 0 END;
  END LOOP;
  IF v_orgs IS NULL THEN
    RETURN NULL;
  END IF;
  IF v_siblings AND (v_ended OR v_revived) THEN
    -- Before the rows that statements share: whoever ends another task of the same event waits here, and then sees what this one left.
    PERFORM l.is_locked
       FROM (SELECT DISTINCT a.org_id, a.event_id FROM added a WHERE a.has_siblings ORDER BY 1, 2) s
      CROSS JOIN LATERAL (
        SELECT true AS is_locked FROM redrive.event e WHERE e.org_id = s.org_id AND e.id = s.event_id FOR NO KEY UPDATE) l;
    FOR g IN
      SELECT c.org_id, c.minute, c.event_type, c.external_system, count(*) FILTER (WHERE s.was > 0 AND s.is = 0 AND NOT s.has_dead)::int AS delivered,
             count(*) FILTER (WHERE s.was > 0 AND s.is = 0 AND s.has_dead)::int AS failed, count(*) FILTER (WHERE s.was = 0 AND s.is > 0)::int AS redriven,
             sum(greatest(s.is, 1) - greatest(s.was, 1))::int AS further
        FROM (SELECT d.org_id, d.event_id, max(d.minute) AS minute, max(d.event_type) AS event_type, max(d.external_system) AS external_system,
                     array_agg(d.id) AS ids, count(*) FILTER (WHERE d.open AND d.minute IS NULL) AS was
                FROM (SELECT r.org_id, r.event_id, r.id, r.open, NULL::timestamptz AS minute, r.event_type, r.external_system
                        FROM removed r WHERE r.has_siblings
                      UNION ALL
                      SELECT a.org_id, a.event_id, a.id, a.open, date_bin('1 minute', a.updated_at, 'epoch'), a.event_type, a.external_system
                        FROM added a WHERE a.has_siblings) d
               GROUP BY 1, 2) c
       CROSS JOIN LATERAL (
         SELECT count(*) FILTER (WHERE t.open AND t.id <> ALL (c.ids)) + c.was AS was, count(*) FILTER (WHERE t.open) AS is,
                bool_or(t.state = 'dead') AS has_dead
           FROM redrive.task t WHERE t.org_id = c.org_id AND t.event_id = c.event_id) s
       GROUP BY 1, 2, 3, 4 ORDER BY 1, 2
    LOOP
      v_orgs := v_orgs || g.org_id;
      v_names := v_names || 'task.further'::text;
      v_changes := v_changes || g.further;
      INSERT INTO redrive.tally (org_id, minute, event_type, external_system, events_delivered, events_failed, events_redriven)
      SELECT g.org_id, g.minute, g.event_type, g.external_system, nullif(g.delivered, 0), nullif(g.failed, 0), nullif(g.redriven, 0)
       WHERE g.delivered + g.failed + g.redriven > 0;
    END LOOP;
  END IF;
  IF v_in_org IS NOT NULL THEN
    INSERT INTO redrive.pulse AS p (org_id, minute, shard, opened, delivered, failed)
    SELECT org_id, minute, redrive.own_shard(), sum(opened), sum(delivered), sum(failed)
      FROM unnest(v_in_org, v_in_minute, v_opened, v_delivered, v_failed) AS d(org_id, minute, opened, delivered, failed)
     GROUP BY org_id, minute ORDER BY org_id, minute
    ON CONFLICT (org_id, minute, shard) DO UPDATE SET
      opened = p.opened + excluded.opened, delivered = p.delivered + excluded.delivered, failed = p.failed + excluded.failed;
  END IF;
  INSERT INTO redrive.counter AS c (org_id, name, shard, n)
  SELECT org_id, name, redrive.own_shard(), sum(n) FROM unnest(v_orgs, v_names, v_changes) AS d(org_id, name, n)
   GROUP BY org_id, name HAVING sum(n) <> 0 ORDER BY org_id, name
  ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
  -- A claim, and whatever else neither ends nor tries anything, is not in the tally. Most statements are like that.
  IF v_revived THEN
    INSERT INTO redrive.tally (org_id, minute, endpoint_id, event_type, external_system, redriven, events_redriven)
    SELECT org_id, date_bin('1 minute', updated_at, 'epoch'), endpoint_id, event_type, external_system, count(*),
           nullif(count(*) - count(has_siblings), 0)
      FROM added WHERE open AND is_test IS NOT TRUE GROUP BY 1, 2, 3, 4, 5;
  ELSIF v_ended OR v_tried <> 0 THEN
    -- What was added to `attempts` are the tries. Rows are not compared one by one with what they were: transition tables have no
    -- index, and the engine's connections join in loops only. What the statement found is taken off, group by group, instead.
    INSERT INTO redrive.tally (org_id, minute, endpoint_id, event_type, external_system, delivered, failed, tries, retried, untried,
                               wait_slots, wait_counts, waited, attempts, retries, events_delivered, events_failed)
    SELECT org_id, minute, endpoint_id, event_type, external_system,
           CASE state WHEN 'succeeded' THEN sum(n) END, CASE state WHEN 'dead' THEN sum(n) END, tries, sum(retried), sum(untried),
           array_agg(slot) FILTER (WHERE slot IS NOT NULL), array_agg(n) FILTER (WHERE slot IS NOT NULL), sum(waited), sum(attempts), sum(retries),
           CASE state WHEN 'succeeded' THEN nullif(sum(alone), 0) END, CASE state WHEN 'dead' THEN nullif(sum(alone), 0) END
      FROM (SELECT org_id, minute, endpoint_id, event_type, external_system, state, tries, slot, count(*)::int AS n, sum(retried) AS retried,
                   sum(untried) AS untried, sum(waited) AS waited, sum(attempts) AS attempts, sum(retries) AS retries,
                   count(*) - count(has_siblings) AS alone
              FROM (SELECT org_id, date_bin('1 minute', v_at, 'epoch') AS minute, endpoint_id, event_type, external_system, NULL AS state,
                           NULL::int AS tries, NULL::int AS retried, NULL::int AS untried, NULL::smallint AS slot, NULL::interval AS waited,
                           -attempts AS attempts, 1 - attempts AS retries, has_siblings
                      FROM removed WHERE attempts > 0 AND is_test IS NOT TRUE
                    UNION ALL
                    SELECT org_id, date_bin('1 minute', updated_at, 'epoch'), endpoint_id, event_type, external_system,
                           CASE WHEN NOT open THEN state END, CASE WHEN NOT open THEN least(greatest(attempts, 1), 11) END,
                           CASE WHEN NOT open THEN greatest(attempts - 1, 0) END, CASE WHEN NOT open AND attempts = 0 THEN 1 END,
                           width_bucket(date_part('epoch', took), v_bounds), took, attempts, greatest(attempts - 1, 0), has_siblings
                      FROM (SELECT a.*, CASE state WHEN 'succeeded' THEN redrive.time_taken(kind, received_at, begun_at, updated_at) END AS took FROM added a) a
                     WHERE (attempts > 0 OR NOT open) AND is_test IS NOT TRUE) d
             GROUP BY 1, 2, 3, 4, 5, 6, 7, 8) f
     GROUP BY 1, 2, 3, 4, 5, state, tries
    HAVING state IS NOT NULL OR sum(attempts) <> 0 OR sum(retries) <> 0;
  END IF;
  RETURN NULL;
END $$;

-- spans_of: the minute, the hour and the day that a minute belongs to.
CREATE FUNCTION redrive.spans_of(p_minute timestamptz) RETURNS TABLE (span text, at timestamptz) LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  VALUES ('minute', p_minute), ('hour', date_bin('1 hour', p_minute, 'epoch')), ('day', date_bin('1 day', p_minute, 'epoch'))
$$;
