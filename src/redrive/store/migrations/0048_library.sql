-- The names of the integration specification in SQL: two views and calculate_next_retry. An open dead letter needs a dead task.

-- retry_delay: the delay of the named policies, without jitter.
CREATE FUNCTION redrive.retry_delay(retry_count integer, policy text)
RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE policy
    WHEN 'manual' THEN NULL
    WHEN 'exponential' THEN (ARRAY[interval '5 s', interval '30 s', interval '300 s'])[least(greatest(retry_count, 0), 2) + 1]
    WHEN 'integration' THEN (ARRAY[interval '5 s', interval '30 s', interval '300 s'])[least(greatest(retry_count, 0), 2) + 1]
    ELSE interval '5 s'
  END
$$;

-- The same for any policy's spec and any random number in [0, 1).
CREATE FUNCTION redrive.retry_delay(retry_count integer, spec jsonb, roll double precision DEFAULT 0.5)
RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT make_interval(secs => redrive.delay_s(retry_count, spec, roll))
$$;

-- calculate_next_retry: when the next retry is due. STABLE, because it reads the clock.
DROP FUNCTION redrive.calculate_next_retry(integer, text);
DROP FUNCTION redrive.calculate_next_retry(integer, jsonb, double precision);
CREATE FUNCTION redrive.calculate_next_retry(p_retry_count integer, p_retry_policy text)
RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT now() + redrive.retry_delay(p_retry_count, p_retry_policy)
$$;

-- What waits for a retry, and the open dead letters. Two parts, so that a filter on in_dlq reads only one of them.
CREATE VIEW redrive.integration_retry_queue WITH (security_invoker = true) AS
SELECT e.id, e.org_id, e.id AS log_id, e.attempts - 1 AS retry_count, (e.policy_spec ->> 'max_retries')::integer AS max_retries,
       CASE e.policy_spec ->> 'kind' WHEN 'list' THEN 'exponential' ELSE e.policy_spec ->> 'kind' END AS retry_policy,
       CASE WHEN e.state <> 'leased' AND isfinite(e.due_at) THEN e.due_at END AS next_retry_at, e.last_failed_at AS last_retry_at,
       CASE WHEN e.state = 'leased' OR e.expedited THEN 'in_progress' ELSE 'pending' END AS status, false AS in_dlq,
       e.error_message, e.error_stack, e.first_failed_at AS created_at, e.updated_at
  FROM redrive.task_entry e
 WHERE e.open AND e.attempts > 0
UNION ALL
SELECT e.id, e.org_id, e.id, greatest(e.attempts - 1, 0), (e.policy_spec ->> 'max_retries')::integer,
       CASE e.policy_spec ->> 'kind' WHEN 'list' THEN 'exponential' ELSE e.policy_spec ->> 'kind' END,
       NULL, e.last_failed_at, 'failed', true, d.error_message, e.error_stack, coalesce(d.first_failed_at, d.created_at), d.updated_at
  FROM redrive.dead_letter d
  JOIN redrive.task_entry e ON e.org_id = d.org_id AND e.id = d.task_id
 WHERE d.state = 'open';

-- body_text: a body as text; bytes that are not UTF-8 are escaped.
CREATE FUNCTION redrive.body_text(body bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN convert_from(body, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire THEN
  RETURN encode(body, 'escape');
END $$;

-- One row for each task that was tried or is dead: its last exchange, and what became of it.
CREATE VIEW redrive.integration_logs WITH (security_invoker = true) AS
SELECT e.id, e.org_id, e.event_id, e.endpoint_id, e.event_type, e.external_system,
       CASE e.state WHEN 'succeeded' THEN 'success' ELSE 'error' END AS status,
       l.url AS request_url, l.request_headers, redrive.body_text(b.body) AS request_body, l.status_code AS response_status, l.response_headers,
       redrive.body_text(l.response_body) AS response_body, e.error_message, e.error_stack,
       CASE WHEN e.state = 'succeeded' AND e.attempts > 1 THEN format('Succeeded on retry attempt %s', e.attempts - 1) END AS note,
       e.correlation_id, e.created_at, e.updated_at
  FROM redrive.task_entry e
  JOIN redrive.task t ON t.org_id = e.org_id AND t.id = e.id
  JOIN redrive.event v ON v.org_id = e.org_id AND v.id = e.event_id
 CROSS JOIN LATERAL (
   SELECT coalesce((SELECT x.body FROM redrive.edit x WHERE x.org_id = t.org_id AND x.task_id = t.id AND x.number = t.edit), v.body) AS body) b
  LEFT JOIN LATERAL (
    SELECT a.url, a.request_headers, a.status_code, a.response_headers, a.response_body FROM redrive.attempt a
     WHERE a.org_id = e.org_id AND a.task_id = e.id AND a.result IN ('succeeded', 'failed', 'lost')
     ORDER BY a.fence DESC LIMIT 1) l ON true
 WHERE e.attempts > 0 OR e.state = 'dead';
GRANT SELECT ON redrive.integration_retry_queue, redrive.integration_logs TO redrive_app, redrive_engine;

-- An open dead letter has a dead task, whoever writes either of them. Checked at the end of each statement: one changes both.
CREATE FUNCTION redrive.refuse_living_letter() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_task uuid := CASE TG_TABLE_NAME WHEN 'task' THEN to_jsonb(NEW) ->> 'id' ELSE to_jsonb(NEW) ->> 'task_id' END;
BEGIN
  IF EXISTS (SELECT FROM redrive.dead_letter d
               JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
              WHERE d.org_id = NEW.org_id AND d.task_id = v_task AND d.state = 'open' AND t.state <> 'dead') THEN
    RAISE EXCEPTION 'dead letter % is open, but its task is not dead', v_task
      USING ERRCODE = 'check_violation', CONSTRAINT = 'check_dlq_status';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER check_dlq_status AFTER INSERT ON redrive.dead_letter FOR EACH ROW
  WHEN (NEW.state = 'open') EXECUTE FUNCTION redrive.refuse_living_letter();
CREATE TRIGGER check_dlq_status_again AFTER UPDATE ON redrive.dead_letter FOR EACH ROW
  WHEN (NEW.state = 'open' AND OLD.state <> 'open') EXECUTE FUNCTION redrive.refuse_living_letter();
CREATE TRIGGER check_dlq_status AFTER UPDATE ON redrive.task FOR EACH ROW
  WHEN (OLD.state = 'dead' AND NEW.state <> 'dead') EXECUTE FUNCTION redrive.refuse_living_letter();

-- The preset `manual` grants three retries like the others. Tasks keep the policy that they were accepted under.
SET LOCAL ROLE redrive_engine;
WITH retired AS (
  UPDATE redrive.policy p SET retired_at = clock_timestamp()
   WHERE name = 'manual' AND preset AND spec ->> 'kind' = 'manual' AND spec ->> 'max_retries' IS NULL
     AND NOT EXISTS (SELECT FROM redrive.policy q WHERE q.org_id = p.org_id AND q.name = p.name AND q.id <> p.id)  -- nobody edited it
  RETURNING *)
INSERT INTO redrive.policy (org_id, id, name, spec, timeout_s, preset, event_types, type_patterns, is_default)
SELECT org_id, redrive.uuid7(), name, jsonb_set(spec, '{max_retries}', '3'), timeout_s, true, event_types, type_patterns, is_default
  FROM retired;
RESET ROLE;
