-- A run of which a dead letter is open is in front of people, whatever else was run of it: no run ends in part while one is.
DROP TRIGGER run_transition ON redrive.run;
CREATE TRIGGER run_transition BEFORE UPDATE ON redrive.run FOR EACH ROW
  WHEN (OLD.status <> NEW.status AND (
          (OLD.status || '>' || NEW.status) NOT IN (
            'PENDING>RUNNING', 'PENDING>FAILED', 'PENDING>DLQ_PENDING', 'RUNNING>SUCCESS', 'RUNNING>FAILED', 'RUNNING>PARTIAL',
            'RUNNING>DLQ_PENDING', 'DLQ_PENDING>RUNNING', 'DLQ_PENDING>FAILED', 'FAILED>RUNNING', 'FAILED>DLQ_PENDING',
            'PARTIAL>RUNNING', 'PARTIAL>DLQ_PENDING', 'SUCCESS>RUNNING')
          OR NEW.status = 'RUNNING' AND OLD.status <> 'PENDING' AND NEW.replays = OLD.replays))
  EXECUTE FUNCTION redrive.refuse_transition();
SET LOCAL ROLE redrive_engine;
UPDATE redrive.run r SET status = 'DLQ_PENDING', finished_at = NULL
 WHERE r.status = 'PARTIAL' AND EXISTS (
   SELECT FROM redrive.task t JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
    WHERE t.org_id = r.org_id AND t.run_id = r.id AND d.state = 'open');
RESET ROLE;

-- As in 0035, but that a letter that is opened again also puts a run before people that had ended in part; and the run, whichever it is, is
-- not a cancelled one any more.
CREATE OR REPLACE FUNCTION redrive.follow_letter() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_run  uuid;
  v_step integer;
  v_state text;
  v_correlation text;
BEGIN
  SELECT t.run_id, t.step, t.state, r.correlation_id INTO v_run, v_step, v_state, v_correlation
    FROM redrive.task t JOIN redrive.run r ON r.org_id = t.org_id AND r.id = t.run_id
   WHERE t.org_id = NEW.org_id AND t.id = NEW.task_id;
  IF TG_OP = 'INSERT' OR NEW.generation <> OLD.generation THEN
    UPDATE redrive.run SET status = CASE NEW.state WHEN 'open' THEN 'DLQ_PENDING' ELSE 'FAILED' END,
           finished_at = CASE WHEN NEW.state <> 'open' THEN NEW.updated_at END, updated_at = NEW.updated_at
     WHERE org_id = NEW.org_id AND id = v_run;
    -- Letters of later steps, whose turn would have come: it does not.
    UPDATE redrive.dead_letter d SET state = NEW.state, replay_outcome = 'failed', updated_at = NEW.updated_at,
           closed_at = NEW.closed_at, closed_by = NEW.closed_by, closed_because = NEW.closed_because
      FROM redrive.task t
     WHERE t.org_id = NEW.org_id AND t.run_id = v_run AND t.step > v_step AND t.state = 'dead'
       AND d.org_id = t.org_id AND d.task_id = t.id AND d.state = 'replaying';
    IF NEW.state = 'open' THEN
      PERFORM redrive.count_for(NEW.org_id, 'workflow.dlq_moves', 1);
      INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, correlation_id, after)
      VALUES (NEW.org_id, redrive.uuid7(), clock_timestamp(), 'engine', 'dead_letter.move', 'dead_letter', NEW.task_id, v_correlation,
              jsonb_build_object('run_id', v_run, 'step_index', v_step, 'reason', NEW.reason, 'category', NEW.category));
    END IF;
  ELSIF NEW.state = 'replaying' THEN
    UPDATE redrive.run SET status = 'RUNNING', replays = replays + 1, stop_after = NULL, finished_at = NULL,
           started_at = coalesce(started_at, NEW.updated_at), cancelled_at = NULL, cancelled_by = NULL, cancelled_because = NULL, updated_at = NEW.updated_at
     WHERE org_id = NEW.org_id AND id = v_run AND status <> 'RUNNING';
    PERFORM redrive.count_for(NEW.org_id, 'workflow.dlq_replays', 1);
  ELSIF NEW.state = 'open' AND OLD.state <> 'replaying' THEN
    -- Somebody may be at another letter of the run, or the engine at its end: they, too, decide by what the other did.
    PERFORM FROM redrive.run r WHERE r.org_id = NEW.org_id AND r.id = v_run FOR UPDATE;
    UPDATE redrive.run SET status = 'DLQ_PENDING', finished_at = NULL, updated_at = NEW.updated_at, cancelled_at = NULL, cancelled_by = NULL,
           cancelled_because = NULL
     WHERE org_id = NEW.org_id AND id = v_run AND status IN ('FAILED', 'PARTIAL');
  ELSIF NEW.state IN ('resolved', 'ignored', 'deleted') AND v_state = 'dead' THEN
    PERFORM FROM redrive.run r WHERE r.org_id = NEW.org_id AND r.id = v_run FOR UPDATE;
    UPDATE redrive.run r SET status = 'FAILED', finished_at = NEW.updated_at, updated_at = NEW.updated_at
     WHERE r.org_id = NEW.org_id AND r.id = v_run AND r.status = 'DLQ_PENDING' AND NOT EXISTS (
       SELECT FROM redrive.task t JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
        WHERE t.org_id = NEW.org_id AND t.run_id = v_run AND d.state = 'open');
  END IF;
  IF TG_OP = 'UPDATE' AND OLD.state = 'replaying' AND NEW.state <> 'replaying' THEN
    INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, correlation_id, after)
    VALUES (NEW.org_id, redrive.uuid7(), clock_timestamp(), 'engine', 'dead_letter.replay_outcome', 'dead_letter', NEW.task_id,
            v_correlation, jsonb_build_object('run_id', v_run, 'step_index', v_step, 'outcome', NEW.replay_outcome));
  END IF;
  RETURN NULL;
END $$;

-- Runs that have ended are found by when they go, not by when they ended: to look at all that are still kept takes the longer the more
-- there are. (A time and seconds added to it do not depend on a time zone; the engine knows that of no interval.)
CREATE FUNCTION redrive.goes_at(p_at timestamptz, p_after_s float8) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN p_at + make_interval(secs => p_after_s);
DROP INDEX redrive.run_that_goes;
CREATE INDEX run_that_goes ON redrive.run (org_id, redrive.goes_at(finished_at, retention_s))
  WHERE retention_s IS NOT NULL AND finished_at IS NOT NULL;
