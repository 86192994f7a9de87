-- Tasks know the event's own time: failed events are read in its order. A transaction of its own, so that no program that
-- hands in events meanwhile waits for this one while this one waits for it.

ALTER TABLE redrive.task ADD COLUMN occurred_at timestamptz;     -- the event's timestamp; NULL: the same as received_at, or it had succeeded before
ALTER TABLE redrive.task DISABLE TRIGGER USER;
-- By the engine, which sees those of all orgs: row-level security hides them from the owner of the schema.
SET LOCAL ROLE redrive_engine;
UPDATE redrive.task t SET occurred_at = e.occurred_at
  FROM redrive.event e
 WHERE e.org_id = t.org_id AND e.id = t.event_id AND e.occurred_at <> t.received_at AND t.state <> 'succeeded';
RESET ROLE;
ALTER TABLE redrive.task ENABLE TRIGGER USER;
CREATE INDEX task_dead_by_time ON redrive.task (org_id, coalesce(occurred_at, received_at), received_at, event_id)
 WHERE reason IS NOT NULL;

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
                              external_system, due_at, received_at, begun_at, updated_at, lane, place, behind, occurred_at)
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
           CASE WHEN l.lane IS NOT NULL THEN true END, nullif(s.occurred_at, v_now)
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

-- enqueue_steps: runs have come to these steps: an event that holds the input, a task to carry it out. The event's id tells the run, the
-- step and the execution, so that none is there twice: the run is locked by whoever asks, and a step that has a task is passed over.
-- The rows that were asked for are not joined with each other, which the engine can only do one by one against all. (The id is that of
-- redrive.id_of_key, written out: to call it takes longer than what it does.) Who began the run has handed its steps in.
CREATE OR REPLACE FUNCTION redrive.enqueue_steps(
  p_org uuid[], p_run uuid[], p_index integer[], p_name text[], p_queue text[], p_type text[], p_endpoint uuid[], p_policy text[],
  p_policy_id uuid[], p_external text[], p_body bytea[], p_headers text[], p_url text[], p_problem text[], p_due_in_s float8[],
  p_now timestamptz DEFAULT NULL)
RETURNS integer LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now  timestamptz := coalesce(p_now, clock_timestamp());
  v_n    integer;
  v_told text;
BEGIN
  WITH asked AS MATERIALIZED (
    SELECT r.*, u.correlation_id, u.created_by, k.execution, redrive.uuid7() AS task_id, v_now + make_interval(secs => r.due_in_s) AS due_at,
           encode(set_byte(set_byte(h.bytes, 6, (get_byte(h.bytes, 6) & 15) | 128), 8, (get_byte(h.bytes, 8) & 63) | 128),
                  'hex')::uuid AS event_id
      FROM unnest(p_org, p_run, p_index, p_name, p_queue, p_type, p_endpoint, p_policy, p_policy_id, p_external, p_body, p_headers,
                  p_url, p_problem, p_due_in_s)
           AS r(org_id, run_id, index, name, queue, type, endpoint_id, policy, policy_id, external, body, headers, url, problem, due_in_s)
      JOIN redrive.run u ON u.org_id = r.org_id AND u.id = r.run_id
      LEFT JOIN redrive.step s ON s.org_id = r.org_id AND s.run_id = r.run_id AND s.index = r.index
     CROSS JOIN LATERAL (SELECT coalesce(s.execution + 1, 0) AS execution) k
     CROSS JOIN LATERAL (
       SELECT substring(sha256(uuid_send(r.org_id) || convert_to(concat_ws(':', 'step', r.run_id, r.index, k.execution), 'UTF8'))
                        FROM 1 FOR 16) AS bytes OFFSET 0) h
     WHERE s.task_id IS NULL),
  stored AS (
    INSERT INTO redrive.event (org_id, id, event_type, tasks, endpoint_id, external_system, correlation_id, occurred_at, received_at,
                               body, headers, submitted_by)
    SELECT a.org_id, a.event_id, a.type, 1, a.endpoint_id, a.external, a.correlation_id, v_now, v_now, a.body, a.headers, a.created_by FROM asked a),
  queued AS (
    INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type, external_system,
                              due_at, received_at, begun_at, updated_at, run_id, step)
    SELECT a.org_id, a.task_id, a.event_id, a.endpoint_id,
           coalesce(a.policy_id,
             (SELECT p.id FROM redrive.policy p WHERE p.org_id = a.org_id AND p.name = a.policy AND p.retired_at IS NULL),
             (SELECT p.id FROM redrive.policy p WHERE p.org_id = a.org_id AND p.name = 'workflow' AND p.retired_at IS NULL),
             (SELECT p.id FROM redrive.policy p WHERE p.org_id = a.org_id AND p.name = 'integration' AND p.retired_at IS NULL)),
           'step', a.queue, 'waiting', a.type, a.external, a.due_at, v_now, a.due_at, v_now, a.run_id, a.index
      FROM asked a),
  noted AS (
    INSERT INTO redrive.step AS s (org_id, run_id, index, name, task_id, execution, idempotency_key, url, problem)
    SELECT a.org_id, a.run_id, a.index, a.name, a.task_id, a.execution, concat_ws(':', a.run_id, a.index), a.url, a.problem FROM asked a
    ON CONFLICT (org_id, run_id, index) DO UPDATE SET
           task_id = excluded.task_id, execution = excluded.execution, url = excluded.url, problem = excluded.problem,
           output = NULL, output_is_cut = false, done_at = NULL)
  SELECT (SELECT count(*) FROM asked),
         redrive.tell(array_agg(t.queue), array_agg(t.org_id), array_agg(t.endpoint_id))::text
    INTO v_n, v_told
    FROM (SELECT DISTINCT a.queue, a.org_id, a.endpoint_id FROM asked a) t;
  RETURN v_n;
END $$;

