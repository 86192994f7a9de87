-- What programs hand in is as short as what is posted: names of external systems are those of rollups, and correlation ids go out with
-- every delivery.
DROP FUNCTION redrive.hand_in(text, text, bytea, text, text, text, text, text, text);

-- hand_in: as before (0043), with bounds for both.
CREATE FUNCTION redrive.hand_in(
  p_type text, p_handler text, p_payload bytea, p_key text, p_org text, p_policy text, p_external text, p_correlation text,
  p_headers text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
DECLARE
  v_org uuid;
  v_id  uuid;
  v_verdict text;
  v_headers text;
BEGIN
  SELECT o.org_id INTO v_org FROM redrive.org o WHERE o.name = p_org;
  IF v_org IS NULL THEN
    RAISE EXCEPTION 'there is no org named %', quote_literal(p_org) USING ERRCODE = 'no_data_found';
  END IF;
  IF p_type IS NULL OR length(p_type) NOT BETWEEN 1 AND 200 OR p_type ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'an event type or handler name has 1 to 200 characters, none of them a control character'
      USING ERRCODE = 'check_violation';
  END IF;
  IF length(p_external) > 200 OR p_external ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'the name of an external system has at most 200 characters, none of them a control character'
      USING ERRCODE = 'check_violation';
  END IF;
  IF length(p_correlation) > 128 OR p_correlation ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'a correlation id has at most 128 characters, none of them a control character'
      USING ERRCODE = 'check_violation';
  END IF;
  IF octet_length(p_payload) > 1048576 THEN
    RAISE EXCEPTION 'a payload has at most 1048576 bytes, not %', octet_length(p_payload) USING ERRCODE = 'check_violation';
  END IF;
  v_id := CASE WHEN p_key IS NULL THEN redrive.uuid7()
               ELSE redrive.id_of_key(v_org, CASE WHEN p_handler IS NULL THEN 'event' ELSE 'handler' END, p_key) END;
  -- What is known is in a trace of its own already: who repeats it comes from another span, and means the same.
  IF p_key IS NOT NULL THEN
    SELECT e.headers INTO v_headers FROM redrive.event e WHERE e.org_id = v_org AND e.id = v_id;
    v_headers := CASE WHEN FOUND THEN v_headers ELSE p_headers END;
  ELSE
    v_headers := p_headers;
  END IF;
  SELECT a.verdict INTO v_verdict FROM redrive.accept(
    ARRAY[v_org], ARRAY[v_id], ARRAY[p_type], ARRAY[p_payload], ARRAY[NULL]::timestamptz[], ARRAY[NULL]::uuid[],
    ARRAY[p_handler], ARRAY[p_policy], ARRAY[p_external], ARRAY[NULL]::text[], ARRAY[p_correlation],
    NULL, NULL, ARRAY[v_headers]) a
   ORDER BY a.event_id NULLS LAST LIMIT 1;
  IF v_verdict = 'no_policy' THEN
    RAISE EXCEPTION 'there is no policy named %', quote_literal(p_policy) USING ERRCODE = 'no_data_found';
  ELSIF v_verdict = 'conflict' THEN
    RAISE EXCEPTION 'idempotency key % was used for another payload, name, policy or external system', quote_literal(p_key)
      USING ERRCODE = 'unique_violation';
  END IF;
  RETURN v_id;
END $$;

REVOKE ALL ON FUNCTION redrive.hand_in FROM PUBLIC;
GRANT EXECUTE ON FUNCTION redrive.hand_in TO redrive_producer;
GRANT CREATE ON SCHEMA redrive TO redrive_engine;
ALTER FUNCTION redrive.hand_in OWNER TO redrive_engine;
REVOKE CREATE ON SCHEMA redrive FROM redrive_engine;

-- Nobody calls it: open_transactions (0041) tells who they are, too.
DROP FUNCTION redrive.oldest_transaction();
