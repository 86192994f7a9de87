-- What programs begin as a run has the bounds of what they hand in (0044).
DROP FUNCTION redrive.hand_in_run(uuid, uuid, uuid, bytea, text, text, text, text, text, text, uuid, text, uuid, text, bytea, text, text, text, float8);

-- hand_in_run: begin_run from within the caller's own transaction, for producers.
CREATE FUNCTION redrive.hand_in_run(
  p_org uuid, p_workflow uuid, p_id uuid, p_input bytea, p_correlation text, p_traceparent text, p_by text, p_name text, p_queue text,
  p_type text, p_endpoint uuid, p_policy text, p_policy_id uuid, p_external text, p_body bytea, p_headers text, p_url text,
  p_problem text, p_due_in_s float8)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
BEGIN
  IF length(p_correlation) > 128 OR p_correlation ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'a correlation id has at most 128 characters, none of them a control character'
      USING ERRCODE = 'check_violation';
  END IF;
  IF length(p_external) > 200 OR p_external ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'the name of an external system has at most 200 characters, none of them a control character'
      USING ERRCODE = 'check_violation';
  END IF;
  IF octet_length(p_input) > 1048576 THEN
    RAISE EXCEPTION 'a run''s input has at most 1048576 bytes, not %', octet_length(p_input) USING ERRCODE = 'check_violation';
  END IF;
  RETURN redrive.begin_run(p_org, p_workflow, p_id, p_input, p_correlation, p_traceparent, p_by, p_name, p_queue, p_type, p_endpoint,
                           p_policy, p_policy_id, p_external, p_body, p_headers, p_url, p_problem, p_due_in_s);
END $$;

REVOKE ALL ON FUNCTION redrive.hand_in_run FROM PUBLIC;
GRANT EXECUTE ON FUNCTION redrive.hand_in_run TO redrive_producer;
GRANT CREATE ON SCHEMA redrive TO redrive_engine;
ALTER FUNCTION redrive.hand_in_run OWNER TO redrive_engine;
REVOKE CREATE ON SCHEMA redrive FROM redrive_engine;
