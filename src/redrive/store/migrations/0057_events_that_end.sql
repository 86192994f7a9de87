-- Events are counted as events, also those that go to several endpoints: such an event ends once, when its last task ends.
-- See docs/decisions/0028.

-- further_of: where an event stands, by its tasks, and how many of its tasks in each state are further ones: to count them would count the
-- event twice. So the number of events in a state is that of tasks, less the counter "further" of that state.
CREATE FUNCTION redrive.further_of(open bigint, succeeded bigint, dead bigint,
  OUT status text, OUT further_open bigint, OUT further_succeeded bigint, OUT further_dead bigint)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT s.status, open - (s.status = 'open')::int, succeeded - (s.status = 'succeeded')::int, dead - (s.status = 'dead')::int
    FROM (SELECT CASE WHEN open > 0 THEN 'open' WHEN dead > 0 THEN 'dead' ELSE 'succeeded' END AS status) s
$$;

-- Locking a row needs the right to change a column. This one: redrive.guard_event lets nobody change it.
GRANT UPDATE (tasks) ON redrive.event TO redrive_engine;

-- Tasks as they move: as in 0051, with the counters of events that have several tasks.
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
      SELECT c.org_id, c.minute, c.event_type, c.external_system,
             nullif(count(*) FILTER (WHERE b.status = 'open' AND e.status = 'succeeded'), 0) AS delivered,
             nullif(count(*) FILTER (WHERE b.status = 'open' AND e.status = 'dead'), 0) AS failed,
             nullif(count(*) FILTER (WHERE b.status <> 'open' AND e.status = 'open'), 0) AS redriven,
             sum(e.further_open - b.further_open)::int AS further_open, sum(e.further_succeeded - b.further_succeeded)::int AS further_succeeded,
             sum(e.further_dead - b.further_dead)::int AS further_dead
        FROM (SELECT d.org_id, d.event_id, max(d.minute) AS minute, max(d.event_type) AS event_type, max(d.external_system) AS external_system,
                     sum(d.n) FILTER (WHERE d.open) AS open, sum(d.n) FILTER (WHERE d.state = 'succeeded') AS succeeded,
                     sum(d.n) FILTER (WHERE d.state = 'dead') AS dead
                FROM (SELECT r.org_id, r.event_id, r.state, r.open, NULL::timestamptz AS minute, r.event_type, r.external_system, -1 AS n
                        FROM removed r WHERE r.has_siblings
                      UNION ALL
                      SELECT a.org_id, a.event_id, a.state, a.open, date_bin('1 minute', a.updated_at, 'epoch'), a.event_type, a.external_system, 1
                        FROM added a WHERE a.has_siblings) d
               GROUP BY 1, 2) c
       CROSS JOIN LATERAL (
         SELECT count(*) FILTER (WHERE t.open) AS open, count(*) FILTER (WHERE t.state = 'succeeded') AS succeeded,
                count(*) FILTER (WHERE t.state = 'dead') AS dead
           FROM redrive.task t WHERE t.org_id = c.org_id AND t.event_id = c.event_id) n
       CROSS JOIN LATERAL redrive.further_of(n.open, n.succeeded, n.dead) e
       CROSS JOIN LATERAL redrive.further_of(n.open - coalesce(c.open, 0), n.succeeded - coalesce(c.succeeded, 0), n.dead - coalesce(c.dead, 0)) b
       GROUP BY 1, 2, 3, 4 ORDER BY 1, 2
    LOOP
      v_orgs := v_orgs || g.org_id || g.org_id || g.org_id;
      v_names := v_names || '{further.open,further.succeeded,further.dead}'::text[];
      v_changes := v_changes || g.further_open || g.further_succeeded || g.further_dead;
      IF num_nonnulls(g.delivered, g.failed, g.redriven) > 0 THEN
        INSERT INTO redrive.tally (org_id, minute, event_type, external_system, events_delivered, events_failed, events_redriven)
        VALUES (g.org_id, g.minute, g.event_type, g.external_system, g.delivered, g.failed, g.redriven);
      END IF;
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

-- Events as they are stored: as in 0039, with these counters.
CREATE OR REPLACE FUNCTION redrive.count_added_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO redrive.counter AS c (org_id, name, shard, n)
  SELECT org_id, name, redrive.own_shard(), sum(n)
    FROM (SELECT org_id, CASE WHEN tasks > 0 THEN 'event.routed' WHEN acked_at IS NULL THEN 'event.inbox'
                              ELSE 'event.acked' END AS name, 1 AS n FROM added
          UNION ALL SELECT org_id, 'event.bytes', octet_length(body) FROM added
          UNION ALL SELECT org_id, 'further.open', tasks - 1 FROM added WHERE tasks > 1) d
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

-- Tasks as they are removed, all of an event's at once: as in 0011, with these counters.
CREATE OR REPLACE FUNCTION redrive.count_removed_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM removed) THEN
    RETURN NULL;
  END IF;
  INSERT INTO redrive.counter AS c (org_id, name, shard, n)
  SELECT org_id, name, redrive.own_shard(), sum(n)
    FROM (SELECT org_id, 'task.' || state AS name, -1 AS n FROM removed
          UNION ALL
          SELECT org_id, 'retrying', -1 FROM removed WHERE attempts > 0 AND open
          UNION ALL
          SELECT e.org_id, f.name, -f.n
            FROM (SELECT org_id, count(*) FILTER (WHERE open) AS open, count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
                         count(*) FILTER (WHERE state = 'dead') AS dead
                    FROM removed WHERE has_siblings GROUP BY org_id, event_id) e
           CROSS JOIN LATERAL redrive.further_of(e.open, e.succeeded, e.dead) o
           CROSS JOIN LATERAL (VALUES ('further.open', o.further_open), ('further.succeeded', o.further_succeeded),
                                      ('further.dead', o.further_dead)) AS f(name, n)) d
   GROUP BY org_id, name HAVING sum(n) <> 0 ORDER BY org_id, name
  ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
  RETURN NULL;
END $$;

-- Events as they are accepted: as in 0053, with tasks that know whether they have siblings. Dropped by the owner of the schema: the
-- function itself belongs to the engine.
DROP FUNCTION redrive.accept;
-- accept: store events and fan them out to one task per matching endpoint (or one for a handler), all or nothing.
-- The first row of the answer is what holds for every event that no further row names; most of the time it is the only one.
-- A verdict is accepted | duplicate | conflict | no_endpoint | no_policy | no_org.
-- No join between the rows handed in: every step is an index look-up per row, whatever the planner believes.
-- An event that was there when it was to be stored, and was removed before it was looked at, is handed in again.
-- A task that must stay in order is stored behind the others of its lane, and the lane is woken. p_rank says in which order
-- the events came, where they are not handed in in that order. p_by says who handed each event in. An event without a
-- correlation id gets one. The fallback policy is the installation's default, else `integration`.
CREATE FUNCTION redrive.accept(
  p_org uuid[], p_id uuid[], p_type text[], p_body bytea[], p_occurred timestamptz[], p_endpoint uuid[],
  p_handler text[], p_policy text[], p_external text[], p_ordering text[], p_correlation text[],
  p_now timestamptz DEFAULT NULL, p_content_type text[] DEFAULT NULL, p_headers text[] DEFAULT NULL, p_rank integer[] DEFAULT NULL,
  p_by text[] DEFAULT NULL)
RETURNS TABLE (org_id uuid, event_id uuid, verdict text, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_now   timestamptz := coalesce(p_now, clock_timestamp());
  v_orgs  uuid[];
  v_ids   uuid[];
  v_fanned integer[];
  v_told  text;
  v_bound          uuid[];  -- policies bound to event types, the one that wins first
  v_bound_org      uuid[];
  v_bound_pattern  text[];
  v_default        uuid[];
  v_default_org    uuid[];
  v_fallback text := coalesce((SELECT i.default_policy FROM redrive.installation i WHERE i.singleton), 'integration');
  v_number bigint := nextval('redrive.task_place');
  v_again  bigint[];  -- the places of events that were removed meanwhile
  v_place  bigint;
BEGIN
  -- Asked once for all rows; in most orgs nothing is bound, and then no task pays for it.
  IF EXISTS (SELECT FROM redrive.policy p
              WHERE p.org_id = ANY (p_org) AND p.retired_at IS NULL AND (p.is_default OR p.event_types <> '{}')) THEN
    -- An exact type beats a pattern; of patterns the one with most before its first star.
    SELECT array_agg(b.id ORDER BY b.rank), array_agg(b.org_id ORDER BY b.rank), array_agg(b.pattern ORDER BY b.rank)
      INTO v_bound, v_bound_org, v_bound_pattern
      FROM (SELECT p.id, p.org_id, t.pattern,
                   row_number() OVER (ORDER BY strpos(t.type, '*') > 0, strpos(t.type, '*') DESC, p.name) AS rank
              FROM redrive.policy p CROSS JOIN LATERAL unnest(p.event_types, p.type_patterns) AS t(type, pattern)
             WHERE p.org_id = ANY (p_org) AND p.retired_at IS NULL AND (p.is_default OR p.event_types <> '{}')) b;
    SELECT array_agg(p.id), array_agg(p.org_id) INTO v_default, v_default_org
      FROM redrive.policy p WHERE p.org_id = ANY (p_org) AND p.retired_at IS NULL AND p.is_default;
  END IF;

  WITH stored AS (
    INSERT INTO redrive.event (org_id, id, event_type, tasks, endpoint_id, handler, policy, external_system,
                               ordering_key, correlation_id, occurred_at, received_at, content_type, body, headers, submitted_by)
    SELECT r.org, r.id, r.type, f.n, r.endpoint, r.handler, r.policy, r.external, r.ordering,
           coalesce(r.correlation, replace(gen_random_uuid()::text, '-', '')), coalesce(r.occurred, v_now), v_now,
           coalesce(r.content_type, 'application/json'), r.body, r.headers, r.submitted_by
      FROM unnest(p_org, p_id, p_type, p_body, p_occurred, p_endpoint, p_handler, p_policy, p_external, p_ordering, p_correlation,
                  p_content_type, p_headers, p_by)
           AS r(org, id, type, body, occurred, endpoint, handler, policy, external, ordering, correlation, content_type, headers,
                submitted_by)
     CROSS JOIN LATERAL (
       SELECT CASE WHEN r.handler IS NOT NULL THEN 1 ELSE (
         SELECT count(*)::int FROM redrive.endpoint e
          WHERE e.org_id = r.org AND e.deleted_at IS NULL
            AND CASE WHEN r.endpoint IS NULL THEN r.type LIKE ANY (e.type_patterns) ELSE e.id = r.endpoint END) END AS n
       OFFSET 0) f  -- counted once: without this, once for each place that names it
     WHERE r.org = ANY (ARRAY(SELECT o.org_id FROM redrive.org o WHERE o.org_id = ANY (p_org)))  -- asked once for all
       AND (r.endpoint IS NULL OR f.n > 0)
       AND (r.policy IS NULL OR EXISTS (
         SELECT FROM redrive.policy p WHERE p.org_id = r.org AND p.name = r.policy AND p.retired_at IS NULL))
    ON CONFLICT (org_id, id) DO NOTHING
    RETURNING org_id, id, event_type, tasks, endpoint_id, handler, policy, external_system, ordering_key, occurred_at),
  queued AS (
    INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type,
                              external_system, due_at, received_at, begun_at, updated_at, lane, place, behind, occurred_at,
                              has_siblings)
    SELECT s.org_id, redrive.uuid7(), s.id, f.endpoint_id,
           -- The event's own policy, else one bound to its type, else the endpoint's, else the org's default, else the
           -- fallback; one
           -- that was deleted since falls through.
           coalesce(
             CASE WHEN s.policy IS NOT NULL THEN (
               SELECT p.id FROM redrive.policy p WHERE p.org_id = s.org_id AND p.name = s.policy AND p.retired_at IS NULL) END,
             CASE WHEN v_bound IS NOT NULL THEN (
               SELECT b.id FROM unnest(v_bound, v_bound_org, v_bound_pattern) WITH ORDINALITY AS b(id, org, pattern, rank)
                WHERE b.org = s.org_id AND coalesce(s.handler, s.event_type) LIKE b.pattern ORDER BY b.rank LIMIT 1) END,
             CASE WHEN f.policy IS NOT NULL THEN (
               SELECT p.id FROM redrive.policy p WHERE p.org_id = s.org_id AND p.name = f.policy AND p.retired_at IS NULL) END,
             CASE WHEN v_default IS NOT NULL THEN (
               SELECT d.id FROM unnest(v_default, v_default_org) AS d(id, org) WHERE d.org = s.org_id) END,
             (SELECT p.id FROM redrive.policy p WHERE p.org_id = s.org_id AND p.name = v_fallback AND p.retired_at IS NULL),
             (SELECT p.id FROM redrive.policy p WHERE p.org_id = s.org_id AND p.name = 'integration' AND p.retired_at IS NULL)),
           f.kind, f.queue, 'waiting', s.event_type,
           coalesce(s.external_system, f.external_system), v_now, v_now, v_now, v_now,
           l.lane, CASE WHEN l.lane IS NOT NULL THEN
                     redrive.new_place(v_number, coalesce(p_rank[array_position(p_id, s.id)], array_position(p_id, s.id))) END,
           CASE WHEN l.lane IS NOT NULL THEN true END, nullif(s.occurred_at, v_now),
           CASE WHEN s.tasks > 1 THEN true END
      FROM stored s
     CROSS JOIN LATERAL (
       SELECT e.id AS endpoint_id, e.kind, e.kind AS queue, e.policy, e.external_system, e.ordered
         FROM redrive.endpoint e
        WHERE s.handler IS NULL AND e.org_id = s.org_id AND e.deleted_at IS NULL
          AND CASE WHEN s.endpoint_id IS NULL THEN s.event_type LIKE ANY (e.type_patterns) ELSE e.id = s.endpoint_id END
       UNION ALL
       SELECT NULL, 'handler', 'handler:' || s.handler, NULL, NULL, false WHERE s.handler IS NOT NULL) f
     CROSS JOIN LATERAL (SELECT CASE WHEN f.ordered THEN f.endpoint_id
                                     WHEN s.ordering_key IS NOT NULL THEN redrive.lane_of(f.endpoint_id, f.queue, s.ordering_key)
                                     END AS lane OFFSET 0) l
    RETURNING org_id, queue, endpoint_id, lane),
  woken AS (
    INSERT INTO redrive.lane_wake (org_id, lane) SELECT DISTINCT q.org_id, q.lane FROM queued q WHERE q.lane IS NOT NULL)
  SELECT array_agg(s.org_id), array_agg(s.id), array_agg(s.tasks),
         (SELECT redrive.tell(array_agg(q.queue), array_agg(q.org_id), array_agg(q.endpoint_id))
            FROM (SELECT DISTINCT CASE WHEN lane IS NULL THEN queue ELSE '' END AS queue, org_id,
                         CASE WHEN lane IS NULL THEN endpoint_id END AS endpoint_id FROM queued) q)::text
    INTO v_orgs, v_ids, v_fanned, v_told FROM stored s;

  verdict := 'accepted';
  status := 'queued';
  RETURN NEXT;
  IF 0 = ANY (v_fanned) THEN
    RETURN QUERY SELECT s.org, s.id, 'accepted', 'received'
                   FROM unnest(v_orgs, v_ids, v_fanned) AS s(org, id, tasks) WHERE s.tasks = 0;
  END IF;
  IF coalesce(cardinality(v_ids), 0) = cardinality(p_id) THEN
    RETURN;
  END IF;

  -- What was not stored: known already, or not acceptable. Known under other terms is a conflict: whoever asks for another
  -- policy must not be told that it is done. A new statement, so that it sees what a concurrent
  -- transaction committed in between.
  FOR org_id, event_id, verdict, status, v_place IN
    SELECT r.org, r.id,
           CASE WHEN o.org_id IS NULL THEN 'no_org'
                WHEN e.id IS NOT NULL AND (e.body IS DISTINCT FROM r.body
                  OR (e.event_type, e.endpoint_id, e.handler, e.policy, e.external_system, e.ordering_key, e.content_type, e.headers)
                     IS DISTINCT FROM (r.type, r.endpoint, r.handler, r.policy, r.external, r.ordering,
                                       coalesce(r.content_type, 'application/json'), r.headers)) THEN 'conflict'
                WHEN e.id IS NOT NULL THEN 'duplicate'
                WHEN r.endpoint IS NOT NULL AND n.id IS NULL THEN 'no_endpoint'
                WHEN r.policy IS NOT NULL AND p.id IS NULL THEN 'no_policy' END, s.status, r.place
      FROM unnest(p_org, p_id, p_type, p_body, p_endpoint, p_handler, p_policy, p_external, p_ordering, p_content_type, p_headers)
           WITH ORDINALITY AS r(org, id, type, body, endpoint, handler, policy, external, ordering, content_type, headers, place)
      LEFT JOIN redrive.org o ON o.org_id = r.org
      LEFT JOIN redrive.event e ON e.org_id = r.org AND e.id = r.id
      LEFT JOIN redrive.event_entry s ON s.org_id = r.org AND s.id = r.id
      LEFT JOIN redrive.endpoint n ON n.org_id = r.org AND n.id = r.endpoint AND n.deleted_at IS NULL
      LEFT JOIN redrive.policy p ON p.org_id = r.org AND p.name = r.policy AND p.retired_at IS NULL
     WHERE (r.org, r.id) NOT IN (SELECT v.org, v.id FROM unnest(v_orgs, v_ids) AS v(org, id))
  LOOP
    IF verdict IS NULL THEN
      v_again := v_again || v_place;
    ELSE
      RETURN NEXT;
    END IF;
  END LOOP;
  IF v_again IS NULL THEN
    RETURN;
  END IF;

  -- Nothing speaks against these any more: they were known, and removed between the two looks (or their endpoint or policy was
  -- made in between). Handed in again; each further round takes another such removal.
  RETURN QUERY
  WITH again AS MATERIALIZED (
    SELECT a.*
      FROM (SELECT array_agg(p_org[k]) AS org, array_agg(p_id[k]) AS id, array_agg(p_type[k]) AS type, array_agg(p_body[k]) AS body,
                   array_agg(p_occurred[k]) AS occurred, array_agg(p_endpoint[k]) AS endpoint, array_agg(p_handler[k]) AS handler,
                   array_agg(p_policy[k]) AS policy, array_agg(p_external[k]) AS external, array_agg(p_ordering[k]) AS ordering,
                   array_agg(p_correlation[k]) AS correlation, array_agg(p_content_type[k]) AS content_type,
                   array_agg(p_headers[k]) AS headers, array_agg(coalesce(p_rank[k], k)) AS rank,
                   array_agg(p_by[k]) AS submitted_by
              FROM unnest(v_again) AS k) g
     CROSS JOIN LATERAL redrive.accept(g.org, g.id, g.type, g.body, g.occurred, g.endpoint, g.handler, g.policy, g.external,
                                       g.ordering, g.correlation, p_now, g.content_type, g.headers, g.rank::integer[], g.submitted_by) a)
  SELECT p_org[k], p_id[k], coalesce(a.verdict, 'accepted'), CASE WHEN a.verdict IS NULL THEN 'queued' ELSE a.status END
    FROM unnest(v_again) AS k LEFT JOIN again a ON a.org_id = p_org[k] AND a.event_id = p_id[k];
END $$;

-- As before: it runs as the engine, whoever calls it.
REVOKE ALL ON FUNCTION redrive.accept FROM PUBLIC;
GRANT CREATE ON SCHEMA redrive TO redrive_engine;
ALTER FUNCTION redrive.accept OWNER TO redrive_engine;
REVOKE CREATE ON SCHEMA redrive FROM redrive_engine;
