-- Tables that grow out of nothing are analysed at once. Until the first ANALYZE, which autovacuum makes after a minute or so, the
-- planner takes each for nearly empty: any index seems as good as the right one, and ten thousand tasks later a settling that reads
-- by the wrong one takes a second.

-- analyse_new: analyse those that are several times as large as when they were last looked at; answers which. As the owner of the
-- tables, whoever calls it; one caller at a time, and the others do not wait.
CREATE FUNCTION redrive.analyse_new() RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
DECLARE
  v_small CONSTANT bigint := 131072;  -- bytes: below that it does not matter
  v_table text;
  v_done  text[] := '{}';
BEGIN
  IF NOT pg_try_advisory_xact_lock(1380271957, 0) THEN
    RETURN v_done;
  END IF;
  FOR v_table IN
    SELECT c.relname FROM pg_class c
     WHERE c.relnamespace = 'redrive'::regnamespace AND c.relkind = 'r'
       AND pg_relation_size(c.oid) > greatest(v_small, 4 * c.relpages::bigint * current_setting('block_size')::bigint)
     ORDER BY c.relname
  LOOP
    EXECUTE format('ANALYZE redrive.%I', v_table);
    v_done := v_done || v_table;
  END LOOP;
  RETURN v_done;
END $$;
REVOKE ALL ON FUNCTION redrive.analyse_new FROM PUBLIC;
GRANT EXECUTE ON FUNCTION redrive.analyse_new TO redrive_engine;
