-- Functions that programs in any language call: ids, delays, accepting and enqueuing.

DO $$
BEGIN
  IF current_setting('server_version_num')::int >= 180000 THEN
    CREATE FUNCTION redrive.uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS 'SELECT uuidv7()';
  ELSE
    -- 48 bits of milliseconds over a random UUID, then version 7 (bits 52 and 53 of a version-4 UUID).
    CREATE FUNCTION redrive.uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $f$
      SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
    $f$;
  END IF;
END $$;

-- delay_s: the delay before retry number retry_count (0, 1, 2 …) under a policy's spec. NULL: never by itself.
-- core/policy.py says the same in Python; a test compares them over random policies.
CREATE FUNCTION redrive.delay_s(retry_count integer, spec jsonb, roll double precision DEFAULT 0.5)
RETURNS double precision LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  full_s  double precision;
  jitter  double precision := coalesce((spec ->> 'jitter')::double precision, 0);
  delays  jsonb := spec -> 'delays_s';
  base_s  double precision := (spec ->> 'base_s')::double precision;
  factor  double precision := (spec ->> 'factor')::double precision;
  cap_s   double precision := (spec ->> 'cap_s')::double precision;
BEGIN
  CASE spec ->> 'kind'
    WHEN 'manual' THEN RETURN NULL;
    WHEN 'immediate' THEN full_s := coalesce((delays ->> 0)::double precision, 5);
    WHEN 'list' THEN full_s := (delays ->> least(greatest(retry_count, 0), jsonb_array_length(delays) - 1))::double precision;
    WHEN 'exponential' THEN
      -- Nothing is shorter than a microsecond. Compare logarithms first: a huge power would overflow.
      base_s := CASE WHEN base_s > 0 THEN greatest(base_s, 1e-6) ELSE 0 END;
      IF base_s = 0 OR factor = 1 THEN
        full_s := least(base_s, cap_s);
      ELSIF ln(base_s) + greatest(retry_count, 0) * ln(factor) >= ln(cap_s + 1) THEN
        full_s := cap_s;
      ELSE
        full_s := least(base_s * factor ^ greatest(retry_count, 0), cap_s);
      END IF;
  END CASE;
  -- PostgreSQL refuses a product that underflows: what is too small to matter is nothing.
  IF full_s < 1e-9 OR jitter < 1e-30 THEN
    RETURN full_s;
  END IF;
  RETURN full_s * (1 + jitter * (2 * roll - 1));
END $$;

-- calculate_next_retry: the delay of the named policies as an interval, without jitter.
CREATE FUNCTION redrive.calculate_next_retry(retry_count integer, policy text)
RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE policy
    WHEN 'manual' THEN NULL
    WHEN 'exponential' THEN (ARRAY[interval '5 s', interval '30 s', interval '300 s'])[least(greatest(retry_count, 0), 2) + 1]
    WHEN 'integration' THEN (ARRAY[interval '5 s', interval '30 s', interval '300 s'])[least(greatest(retry_count, 0), 2) + 1]
    ELSE interval '5 s'
  END
$$;

-- The same for any policy's spec and any roll of the dice in [0, 1).
CREATE FUNCTION redrive.calculate_next_retry(retry_count integer, spec jsonb, roll double precision DEFAULT 0.5)
RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT make_interval(secs => redrive.delay_s(retry_count, spec, roll))
$$;

-- redact_url: a stored URL as people may see it. core/redact.py says the same of every URL that an endpoint can have;
-- a test compares them.
CREATE FUNCTION redrive.redact_url(url text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN url ~ '^[^:]+://[^/?#]*:[^/?#]*[/?#].*@' THEN regexp_replace(url, '://.*$', '://[redacted]')
              ELSE regexp_replace(regexp_replace(url, '[?#].*$', '?[redacted]'), '/hooks/[^/?#]+', '/hooks/[redacted]', 'g') END
$$;

-- config_of: an endpoint as a dead letter remembers it. No secret, no header value, no query of the URL.
CREATE FUNCTION redrive.config_of(p_org uuid, p_endpoint uuid) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object('id', e.id, 'name', e.name, 'kind', e.kind, 'url', redrive.redact_url(e.url),
                            'event_types', e.event_types, 'policy', e.policy, 'ordered', e.ordered,
                            'external_system', e.external_system, 'timeout_s', e.timeout_s,
                            'max_in_flight', e.max_in_flight, 'rate_per_s', e.rate_per_s,
                            'disabled', e.disabled_at IS NOT NULL, 'deleted', e.deleted_at IS NOT NULL)
    FROM redrive.endpoint e WHERE e.org_id = p_org AND e.id = p_endpoint
$$;

-- accept: store events and fan them out to one task per matching endpoint (or one for a handler), all or nothing.
-- The first row of the answer is what holds for every event that no further row names; most of the time it is the only one.
-- A verdict is accepted | duplicate | conflict | no_endpoint | no_policy | no_org.
-- No join between the rows handed in: every step is an index look-up per row, whatever the planner believes.
CREATE FUNCTION redrive.accept(
  p_org uuid[], p_id uuid[], p_type text[], p_body bytea[], p_occurred timestamptz[], p_endpoint uuid[],
  p_handler text[], p_policy text[], p_external text[], p_ordering text[], p_correlation text[],
  p_now timestamptz DEFAULT NULL)
RETURNS TABLE (org_id uuid, event_id uuid, verdict text, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_now   timestamptz := coalesce(p_now, clock_timestamp());
  v_orgs  uuid[];
  v_ids   uuid[];
  v_fanned integer[];
  v_told  text;
BEGIN
  WITH stored AS (
    INSERT INTO redrive.event (org_id, id, event_type, tasks, endpoint_id, handler, policy, external_system,
                               ordering_key, correlation_id, occurred_at, received_at, body)
    SELECT r.org, r.id, r.type, f.n, r.endpoint, r.handler, r.policy, r.external, r.ordering, r.correlation,
           coalesce(r.occurred, v_now), v_now, r.body
      FROM unnest(p_org, p_id, p_type, p_body, p_occurred, p_endpoint, p_handler, p_policy, p_external, p_ordering, p_correlation)
           AS r(org, id, type, body, occurred, endpoint, handler, policy, external, ordering, correlation)
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
           -- The event's own policy, else the endpoint's, else the default; one that was deleted since falls through.
           coalesce(
             CASE WHEN s.policy IS NOT NULL THEN (
               SELECT p.id FROM redrive.policy p WHERE p.org_id = s.org_id AND p.name = s.policy AND p.retired_at IS NULL) END,
             CASE WHEN f.policy IS NOT NULL THEN (
               SELECT p.id FROM redrive.policy p WHERE p.org_id = s.org_id AND p.name = f.policy AND p.retired_at IS NULL) END,
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
  RETURN QUERY
  SELECT r.org, r.id,
         CASE WHEN o.org_id IS NULL THEN 'no_org'
              WHEN e.id IS NOT NULL AND (e.body IS DISTINCT FROM r.body
                OR (e.event_type, e.endpoint_id, e.handler, e.policy, e.external_system, e.ordering_key)
                   IS DISTINCT FROM (r.type, r.endpoint, r.handler, r.policy, r.external, r.ordering)) THEN 'conflict'
              WHEN e.id IS NOT NULL THEN 'duplicate'
              WHEN r.endpoint IS NOT NULL AND n.id IS NULL THEN 'no_endpoint'
              ELSE 'no_policy' END, s.status
    FROM unnest(p_org, p_id, p_type, p_body, p_endpoint, p_handler, p_policy, p_external, p_ordering)
         AS r(org, id, type, body, endpoint, handler, policy, external, ordering)
    LEFT JOIN redrive.org o ON o.org_id = r.org
    LEFT JOIN redrive.event e ON e.org_id = r.org AND e.id = r.id
    LEFT JOIN redrive.event_entry s ON s.org_id = r.org AND s.id = r.id
    LEFT JOIN redrive.endpoint n ON n.org_id = r.org AND n.id = r.endpoint AND n.deleted_at IS NULL
   WHERE (r.org, r.id) NOT IN (SELECT v.org, v.id FROM unnest(v_orgs, v_ids) AS v(org, id));
END $$;

-- id_of_key: an idempotency key's event id, so that the primary key itself refuses a second one (UUID version 8).
-- The kind is 'event' or 'handler': the same key for both is two things.
CREATE FUNCTION redrive.id_of_key(p_org uuid, p_kind text, p_key text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
  SELECT encode(set_byte(set_byte(h, 6, (get_byte(h, 6) & 15) | 128), 8, (get_byte(h, 8) & 63) | 128), 'hex')::uuid
    FROM (SELECT substring(sha256(uuid_send(p_org) || convert_to(p_kind || ':' || p_key, 'UTF8')) FROM 1 FOR 16) AS h) d
$$;

-- hand_in: one event, or one call of a handler, from within the caller's own transaction: it exists when that commits.
-- The same idempotency key is the same event, however often it is handed in. The clients' enqueue and publish end here.
CREATE FUNCTION redrive.hand_in(
  p_type text, p_handler text, p_payload bytea, p_key text, p_org text, p_policy text, p_external text, p_correlation text)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
DECLARE
  v_org uuid;
  v_id  uuid;
  v_verdict text;
BEGIN
  SELECT o.org_id INTO v_org FROM redrive.org o WHERE o.name = p_org;
  IF v_org IS NULL THEN
    RAISE EXCEPTION 'there is no org named %', quote_literal(p_org) USING ERRCODE = 'no_data_found';
  END IF;
  IF p_type IS NULL OR length(p_type) NOT BETWEEN 1 AND 200 OR p_type ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'an event type or handler name has 1 to 200 characters, none of them a control character'
      USING ERRCODE = 'check_violation';
  END IF;
  IF octet_length(p_payload) > 1048576 THEN
    RAISE EXCEPTION 'a payload has at most 1048576 bytes, not %', octet_length(p_payload) USING ERRCODE = 'check_violation';
  END IF;
  v_id := CASE WHEN p_key IS NULL THEN redrive.uuid7()
               ELSE redrive.id_of_key(v_org, CASE WHEN p_handler IS NULL THEN 'event' ELSE 'handler' END, p_key) END;
  SELECT a.verdict INTO v_verdict FROM redrive.accept(
    ARRAY[v_org], ARRAY[v_id], ARRAY[p_type], ARRAY[p_payload], ARRAY[NULL]::timestamptz[], ARRAY[NULL]::uuid[],
    ARRAY[p_handler], ARRAY[p_policy], ARRAY[p_external], ARRAY[NULL]::text[], ARRAY[p_correlation]) a
   ORDER BY a.event_id NULLS LAST LIMIT 1;
  IF v_verdict = 'no_policy' THEN
    RAISE EXCEPTION 'there is no policy named %', quote_literal(p_policy) USING ERRCODE = 'no_data_found';
  ELSIF v_verdict = 'conflict' THEN
    RAISE EXCEPTION 'idempotency key % was used for another payload, name, policy or external system', quote_literal(p_key)
      USING ERRCODE = 'unique_violation';
  END IF;
  RETURN v_id;
END $$;

-- enqueue: a call of a Python handler, from any language. publish: an event for whoever subscribes to its type.
CREATE FUNCTION redrive.enqueue(
  handler text, payload jsonb, idempotency_key text DEFAULT NULL, org text DEFAULT 'default',
  policy text DEFAULT NULL, external_system text DEFAULT NULL, correlation_id text DEFAULT NULL)
RETURNS uuid LANGUAGE sql AS $$
  SELECT redrive.hand_in($1, $1, convert_to($2::text, 'UTF8'), $3, $4, $5, $6, $7)
$$;
CREATE FUNCTION redrive.publish(
  event_type text, payload jsonb, idempotency_key text DEFAULT NULL, org text DEFAULT 'default',
  policy text DEFAULT NULL, external_system text DEFAULT NULL, correlation_id text DEFAULT NULL)
RETURNS uuid LANGUAGE sql AS $$
  SELECT redrive.hand_in($1, NULL, convert_to($2::text, 'UTF8'), $3, $4, $5, $6, $7)
$$;

-- They run as the engine, whoever calls them. Who may call them is said first: afterwards they belong to another role, and
-- PostgreSQL would only warn. (Only an owner with CREATE on the schema can be given a function.)
REVOKE ALL ON FUNCTION redrive.accept, redrive.hand_in FROM PUBLIC;
GRANT EXECUTE ON FUNCTION redrive.hand_in TO redrive_producer;
GRANT CREATE ON SCHEMA redrive TO redrive_engine;
ALTER FUNCTION redrive.accept OWNER TO redrive_engine;
ALTER FUNCTION redrive.hand_in OWNER TO redrive_engine;
REVOKE CREATE ON SCHEMA redrive FROM redrive_engine;
