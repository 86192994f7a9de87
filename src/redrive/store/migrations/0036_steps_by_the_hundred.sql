-- Steps by the hundred: what follows many runs at once costs each of them the same.

-- enqueue_steps, as before: an event that holds the input, a task to carry it out. The rows that were asked for are not joined with each
-- other, which the engine can only do one by one against all. A step's event has an id of its own for each execution, and so cannot be
-- there: the run is locked by whoever asks, and a step that has a task is passed over. (The id is that of redrive.id_of_key, written
-- out: to call it takes longer than what it does.)
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
    SELECT r.*, u.correlation_id, k.execution, redrive.uuid7() AS task_id, v_now + make_interval(secs => r.due_in_s) AS due_at,
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
                               body, headers)
    SELECT a.org_id, a.event_id, a.type, 1, a.endpoint_id, a.external, a.correlation_id, v_now, v_now, a.body, a.headers FROM asked a),
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

-- The claim of a first step starts its run (claim.sql), all runs of a claim at once.
DROP TRIGGER start_run ON redrive.task;
DROP FUNCTION redrive.start_run;
