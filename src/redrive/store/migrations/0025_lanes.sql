-- Order, and claims that go round. A lane is what must stay in order: an endpoint that is `ordered`, or an endpoint and an
-- ordering key. Of a lane only the head may be tried. What comes behind it is in no index that a claim looks at: a lane that
-- waits costs nothing, however long it is.

ALTER TABLE redrive.endpoint
  ADD COLUMN max_block_s double precision CHECK (max_block_s > 0),  -- how long a head that fails may keep its lane; NULL: as its policy says
  ADD COLUMN on_block    text NOT NULL DEFAULT 'skip' CHECK (on_block IN ('skip', 'halt'));  -- what a head's death does to its lane

ALTER TABLE redrive.task
  ADD COLUMN lane         uuid,      -- NULL: in no order
  ADD COLUMN place        bigint,    -- in its lane: the order of acceptance
  ADD COLUMN behind       boolean,   -- another one of its lane comes first. NULL: no
  ADD COLUMN out_of_order boolean;   -- redriven when later ones had been delivered. NULL: no
CREATE SEQUENCE redrive.task_place;
GRANT USAGE ON SEQUENCE redrive.task_place TO redrive_app, redrive_engine;

-- The one clock of the engine, now by stream: the first tries, or the retries, of one endpoint (or of a handler, in one org).
-- A claim names the streams that it wants tasks of; which have any is found by stepping from one to the next (survey.sql).
CREATE INDEX task_stream ON redrive.task
  (queue, org_id, coalesce(endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), (attempts > 0), due_at, id)
  WHERE live AND behind IS NULL;
DROP INDEX redrive.task_due;

-- A lane has one head at most, and its followers in their order.
CREATE UNIQUE INDEX task_head ON redrive.task (org_id, lane) WHERE lane IS NOT NULL AND open AND behind IS NULL;
CREATE INDEX task_behind ON redrive.task (org_id, lane, place) WHERE behind AND open;

-- What is to be remembered of a lane: that some of it died since the last delivery, and that it is halted, and by which task.
-- Lanes that never saw a death have no row.
CREATE TABLE redrive.lane (
  org_id       uuid NOT NULL,
  lane         uuid NOT NULL,
  endpoint_id  uuid,
  ordering_key text,                          -- NULL: the endpoint as a whole
  gap          integer NOT NULL DEFAULT 0,    -- deaths since the last delivery: the next one carries the number
  last_place   bigint,                        -- of the first delivery behind a death: what died before it is out of order now
  halted_at    timestamptz,
  halted_by    uuid,                          -- the task that died
  PRIMARY KEY (org_id, lane),
  CHECK ((halted_at IS NULL) = (halted_by IS NULL))
);
CREATE INDEX lane_halted ON redrive.lane (org_id, halted_by) WHERE halted_by IS NOT NULL;
CREATE INDEX lane_of_endpoint ON redrive.lane (org_id, endpoint_id, lane);

-- Lanes that may be without a head though something waits in them. Whoever adds to a lane cannot know: its head may be ending at
-- this moment, in a transaction that does not see what is added. To wait for each other would let a caller's own open
-- transaction stop a lane. So who adds leaves a row, and a worker looks (wake_lanes.sql).
CREATE TABLE redrive.lane_wake (
  org_id uuid NOT NULL,
  lane   uuid NOT NULL,
  number bigint GENERATED ALWAYS AS IDENTITY,
  PRIMARY KEY (org_id, lane, number)
) WITH (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

CALL redrive.secure('lane');
CALL redrive.secure('lane_wake');
GRANT SELECT, INSERT, UPDATE, DELETE ON redrive.lane, redrive.lane_wake TO redrive_app, redrive_engine;

-- lane_of: the lane of an ordering key.
CREATE FUNCTION redrive.lane_of(p_endpoint uuid, p_queue text, p_key text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT md5(coalesce(p_endpoint::text, p_queue) || ' ' || p_key)::uuid
$$;

-- new_place: a place in a lane. Who comes later has the larger number; within one call the rank decides.
CREATE FUNCTION redrive.new_place(p_number bigint, p_rank integer) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_number << 20) + p_rank
$$;

-- tell: wake the workers, and say for which streams: a line each of queue, org and endpoint. An empty queue: a lane was woken.
-- What does not fit, or is told without lines, makes them look everywhere.
CREATE FUNCTION redrive.tell(p_queues text[], p_orgs uuid[], p_endpoints uuid[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_lines text;
BEGIN
  IF cardinality(p_queues) > 90 THEN
    PERFORM pg_notify('redrive_due', '');
  ELSIF p_queues IS NOT NULL THEN
    SELECT string_agg(concat_ws(E'\t', t.queue, t.org, coalesce(t.endpoint::text, '')), E'\n') INTO v_lines
      FROM unnest(p_queues, p_orgs, p_endpoints) AS t(queue, org, endpoint);
    PERFORM pg_notify('redrive_due', CASE WHEN octet_length(v_lines) < 7900 THEN v_lines ELSE '' END);
  END IF;
END $$;

-- promote_next: the first of a lane becomes its head, and is due from then on. Called where a head has ended, in the same transaction.
CREATE FUNCTION redrive.promote_next(p_org uuid, p_lane uuid, p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE redrive.task t SET behind = NULL, due_at = greatest(t.due_at, p_now)
   WHERE t.org_id = p_org AND t.id = (
     SELECT n.id FROM redrive.task n WHERE n.org_id = p_org AND n.lane = p_lane AND n.behind AND n.open ORDER BY n.place LIMIT 1);
END $$;

-- A task of a lane has ended: the lane remembers a death, or that what died before is told, and moves on or halts.
CREATE FUNCTION redrive.end_in_lane() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_halts boolean := false;
BEGIN
  IF NEW.state = 'succeeded' THEN
    UPDATE redrive.lane SET gap = 0, last_place = greatest(last_place, NEW.place)
     WHERE org_id = NEW.org_id AND lane = NEW.lane AND gap > 0;
  ELSE
    v_halts := OLD.behind IS NULL AND NEW.reason <> 'skipped' AND EXISTS (
      SELECT FROM redrive.endpoint e
       WHERE e.org_id = NEW.org_id AND e.id = NEW.endpoint_id AND e.on_block = 'halt' AND e.deleted_at IS NULL);
    INSERT INTO redrive.lane AS l (org_id, lane, endpoint_id, ordering_key, gap, halted_at, halted_by)
    SELECT NEW.org_id, NEW.lane, NEW.endpoint_id, CASE WHEN NEW.lane IS DISTINCT FROM NEW.endpoint_id THEN e.ordering_key END, 1,
           CASE WHEN v_halts THEN NEW.updated_at END, CASE WHEN v_halts THEN NEW.id END
      FROM redrive.event e WHERE e.org_id = NEW.org_id AND e.id = NEW.event_id
    ON CONFLICT (org_id, lane) DO UPDATE SET
           gap = l.gap + 1, halted_at = coalesce(excluded.halted_at, l.halted_at), halted_by = coalesce(excluded.halted_by, l.halted_by);
  END IF;
  IF OLD.behind IS NULL AND NOT v_halts THEN
    PERFORM redrive.promote_next(NEW.org_id, NEW.lane, NEW.updated_at);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER end_in_lane AFTER UPDATE ON redrive.task FOR EACH ROW
  WHEN (OLD.lane IS NOT NULL AND OLD.open AND NOT NEW.open) EXECUTE FUNCTION redrive.end_in_lane();

-- Whatever a person does with the letter that halted a lane lets the lane go on.
CREATE FUNCTION redrive.lift_halt() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_told text;
BEGIN
  WITH lifted AS (
    UPDATE redrive.lane SET halted_at = NULL, halted_by = NULL
     WHERE org_id = NEW.org_id AND halted_by = NEW.task_id RETURNING org_id, lane),
  woken AS (
    INSERT INTO redrive.lane_wake (org_id, lane) SELECT org_id, lane FROM lifted RETURNING org_id)
  SELECT redrive.tell(ARRAY[''], ARRAY[org_id], ARRAY[NULL]::uuid[])::text INTO v_told FROM woken;
  RETURN NULL;
END $$;
CREATE TRIGGER lift_halt AFTER UPDATE ON redrive.dead_letter FOR EACH ROW
  WHEN (OLD.state = 'open' AND NEW.state <> 'open') EXECUTE FUNCTION redrive.lift_halt();

-- Dropped by the owner of the schema: the function itself belongs to the engine. Calls without the new argument still work.
DROP FUNCTION redrive.accept;
-- accept: store events and fan them out to one task per matching endpoint (or one for a handler), all or nothing.
-- The first row of the answer is what holds for every event that no further row names; most of the time it is the only one.
-- A verdict is accepted | duplicate | conflict | no_endpoint | no_policy | no_org.
-- No join between the rows handed in: every step is an index look-up per row, whatever the planner believes.
-- An event that was there when it was to be stored, and was removed before it was looked at, is handed in again.
-- Here with lanes: a task that must stay in order is stored behind the others of its lane, and the lane is woken. p_rank says
-- in which order the events came, where they are not handed in in that order.
CREATE FUNCTION redrive.accept(
  p_org uuid[], p_id uuid[], p_type text[], p_body bytea[], p_occurred timestamptz[], p_endpoint uuid[],
  p_handler text[], p_policy text[], p_external text[], p_ordering text[], p_correlation text[],
  p_now timestamptz DEFAULT NULL, p_content_type text[] DEFAULT NULL, p_headers text[] DEFAULT NULL, p_rank integer[] DEFAULT NULL)
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
                               ordering_key, correlation_id, occurred_at, received_at, content_type, body, headers)
    SELECT r.org, r.id, r.type, f.n, r.endpoint, r.handler, r.policy, r.external, r.ordering, r.correlation,
           coalesce(r.occurred, v_now), v_now, coalesce(r.content_type, 'application/json'), r.body, r.headers
      FROM unnest(p_org, p_id, p_type, p_body, p_occurred, p_endpoint, p_handler, p_policy, p_external, p_ordering, p_correlation,
                  p_content_type, p_headers)
           AS r(org, id, type, body, occurred, endpoint, handler, policy, external, ordering, correlation, content_type, headers)
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
    RETURNING org_id, id, event_type, tasks, endpoint_id, handler, policy, external_system, ordering_key),
  queued AS (
    INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type,
                              external_system, due_at, received_at, begun_at, updated_at, lane, place, behind)
    SELECT s.org_id, redrive.uuid7(), s.id, f.endpoint_id,
           -- The event's own policy, else one bound to its type, else the endpoint's, else the org's default, else ours; one
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
             (SELECT p.id FROM redrive.policy p WHERE p.org_id = s.org_id AND p.name = 'integration' AND p.retired_at IS NULL)),
           f.kind, f.queue, 'waiting', s.event_type,
           coalesce(s.external_system, f.external_system), v_now, v_now, v_now, v_now,
           l.lane, CASE WHEN l.lane IS NOT NULL THEN
                     redrive.new_place(v_number, coalesce(p_rank[array_position(p_id, s.id)], array_position(p_id, s.id))) END,
           CASE WHEN l.lane IS NOT NULL THEN true END
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
                   array_agg(p_headers[k]) AS headers, array_agg(coalesce(p_rank[k], k)) AS rank
              FROM unnest(v_again) AS k) g
     CROSS JOIN LATERAL redrive.accept(g.org, g.id, g.type, g.body, g.occurred, g.endpoint, g.handler, g.policy, g.external,
                                       g.ordering, g.correlation, p_now, g.content_type, g.headers, g.rank::integer[]) a)
  SELECT p_org[k], p_id[k], coalesce(a.verdict, 'accepted'), CASE WHEN a.verdict IS NULL THEN 'queued' ELSE a.status END
    FROM unnest(v_again) AS k LEFT JOIN again a ON a.org_id = p_org[k] AND a.event_id = p_id[k];
END $$;

-- As before: it runs as the engine, whoever calls it.
REVOKE ALL ON FUNCTION redrive.accept FROM PUBLIC;
GRANT CREATE ON SCHEMA redrive TO redrive_engine;
ALTER FUNCTION redrive.accept OWNER TO redrive_engine;
REVOKE CREATE ON SCHEMA redrive FROM redrive_engine;
