-- What an event may bring besides JSON, and policies that are chosen by an event's type or for a whole org.

-- Headers that go out with its deliveries, as a JSON object of texts: the attributes of a CloudEvent. NULL: none.
ALTER TABLE redrive.event ADD COLUMN headers text;

-- Which events a policy is for. Unlike the spec, a task keeps nothing of this: it may be changed in place.
ALTER TABLE redrive.policy
  ADD COLUMN event_types   text[] NOT NULL DEFAULT '{}',
  ADD COLUMN type_patterns text[] NOT NULL DEFAULT '{}',  -- event_types as LIKE patterns
  ADD COLUMN is_default    boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX policy_default ON redrive.policy (org_id) WHERE is_default AND retired_at IS NULL;
-- Asked by every accept: empty for an org that binds nothing.
CREATE INDEX policy_bound ON redrive.policy (org_id) WHERE retired_at IS NULL AND (is_default OR event_types <> '{}');

-- Dropped by the owner of the schema: the function itself belongs to the engine. Calls without the new arguments still work.
DROP FUNCTION redrive.accept;
-- accept: store events and fan them out to one task per matching endpoint (or one for a handler), all or nothing.
-- The first row of the answer is what holds for every event that no further row names; most of the time it is the only one.
-- A verdict is accepted | duplicate | conflict | no_endpoint | no_policy | no_org.
-- No join between the rows handed in: every step is an index look-up per row, whatever the planner believes.
-- Here with what an event may bring besides JSON (a content type, headers), and policies that are bound to event types.
-- An event that was there when it was to be stored, and was removed before it was looked at, is handed in again.
CREATE FUNCTION redrive.accept(
  p_org uuid[], p_id uuid[], p_type text[], p_body bytea[], p_occurred timestamptz[], p_endpoint uuid[],
  p_handler text[], p_policy text[], p_external text[], p_ordering text[], p_correlation text[],
  p_now timestamptz DEFAULT NULL, p_content_type text[] DEFAULT NULL, p_headers text[] DEFAULT NULL)
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
    RETURNING org_id, id, event_type, tasks, endpoint_id, handler, policy, external_system),
  queued AS (
    INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type,
                              external_system, due_at, received_at, begun_at, updated_at)
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
           coalesce(s.external_system, f.external_system), v_now, v_now, v_now, v_now
      FROM stored s
     CROSS JOIN LATERAL (
       SELECT e.id AS endpoint_id, e.kind, e.kind AS queue, e.policy, e.external_system
         FROM redrive.endpoint e
        WHERE s.handler IS NULL AND e.org_id = s.org_id AND e.deleted_at IS NULL
          AND CASE WHEN s.endpoint_id IS NULL THEN s.event_type LIKE ANY (e.type_patterns) ELSE e.id = s.endpoint_id END
       UNION ALL
       SELECT NULL, 'handler', 'handler:' || s.handler, NULL, NULL WHERE s.handler IS NOT NULL) f
    RETURNING 1)
  SELECT array_agg(s.org_id), array_agg(s.id), array_agg(s.tasks),
         CASE WHEN EXISTS (SELECT FROM queued) THEN pg_notify('redrive_due', '')::text END
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
                   array_agg(p_headers[k]) AS headers
              FROM unnest(v_again) AS k) g
     CROSS JOIN LATERAL redrive.accept(g.org, g.id, g.type, g.body, g.occurred, g.endpoint, g.handler, g.policy, g.external,
                                       g.ordering, g.correlation, p_now, g.content_type, g.headers) a)
  SELECT p_org[k], p_id[k], coalesce(a.verdict, 'accepted'), CASE WHEN a.verdict IS NULL THEN 'queued' ELSE a.status END
    FROM unnest(v_again) AS k LEFT JOIN again a ON a.org_id = p_org[k] AND a.event_id = p_id[k];
END $$;

-- As before: it runs as the engine, whoever calls it.
REVOKE ALL ON FUNCTION redrive.accept FROM PUBLIC;
GRANT CREATE ON SCHEMA redrive TO redrive_engine;
ALTER FUNCTION redrive.accept OWNER TO redrive_engine;
REVOKE CREATE ON SCHEMA redrive FROM redrive_engine;
