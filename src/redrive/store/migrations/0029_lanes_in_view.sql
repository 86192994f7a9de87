-- Lanes in front of people: found by their endpoint, told where they halt, and a place in them for what is redriven.

-- Where a bulk retry puts what is in a lane. NULL: in its place while the lane is halted, else at the tail.
ALTER TABLE redrive.operation ADD COLUMN lane_order text CHECK (lane_order IN ('in_place', 'tail'));

-- The lanes of an endpoint that are halted, and those in which something waits: stepped through, from one to the next.
CREATE INDEX lane_halted_of_endpoint ON redrive.lane (org_id, endpoint_id, lane) WHERE halted_at IS NOT NULL;
CREATE INDEX task_waiting_lane ON redrive.task (org_id, endpoint_id, lane) WHERE behind AND open;

-- note_halt: that a lane halted is in the audit, and people are told. Its letter may not be written yet: the task is named.
CREATE FUNCTION redrive.note_halt(p_task redrive.task, p_key text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_endpoint text := (SELECT e.name FROM redrive.endpoint e WHERE e.org_id = p_task.org_id AND e.id = p_task.endpoint_id);
BEGIN
  INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, because, after)
  VALUES (p_task.org_id, redrive.uuid7(), p_task.updated_at, 'engine', 'lane.halt', 'endpoint', p_task.endpoint_id,
          'a delivery died, and this endpoint halts its lanes then',
          jsonb_build_object('lane', p_task.lane, 'ordering_key', p_key, 'dead_letter_id', p_task.id));
  PERFORM redrive.note(
    p_task.org_id, 'lane.halted', 'error', 'endpoint', p_task.endpoint_id,
    format('%s of endpoint "%s" is halted: %s died, and nothing behind it is sent. Retry, resolve or ignore its dead letter, or resume the lane.',
           CASE WHEN p_key IS NULL THEN 'The lane' ELSE format('The lane of key "%s"', left(p_key, 200)) END, v_endpoint,
           left(p_task.event_type, 200)),
    jsonb_build_object('endpoint_id', p_task.endpoint_id, 'endpoint', v_endpoint, 'lane', p_task.lane, 'ordering_key', p_key,
                       'task_id', p_task.id, 'event_id', p_task.event_id, 'event_type', left(p_task.event_type, 200),
                       'reason', p_task.reason),
    p_task.updated_at);
END $$;

-- As before, and what halts is told.
CREATE OR REPLACE FUNCTION redrive.end_in_lane() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_halts boolean := false;
  v_key   text;
BEGIN
  IF NEW.state = 'succeeded' THEN
    UPDATE redrive.lane SET gap = 0, last_place = greatest(last_place, NEW.place)
     WHERE org_id = NEW.org_id AND lane = NEW.lane AND gap > 0;
  ELSE
    v_halts := OLD.behind IS NULL AND NEW.reason <> 'skipped' AND EXISTS (
      SELECT FROM redrive.endpoint e
       WHERE e.org_id = NEW.org_id AND e.id = NEW.endpoint_id AND e.on_block = 'halt' AND e.deleted_at IS NULL);
    IF NEW.lane IS DISTINCT FROM NEW.endpoint_id THEN
      v_key := (SELECT e.ordering_key FROM redrive.event e WHERE e.org_id = NEW.org_id AND e.id = NEW.event_id);
    END IF;
    INSERT INTO redrive.lane AS l (org_id, lane, endpoint_id, ordering_key, gap, halted_at, halted_by)
    VALUES (NEW.org_id, NEW.lane, NEW.endpoint_id, v_key, 1,
            CASE WHEN v_halts THEN NEW.updated_at END, CASE WHEN v_halts THEN NEW.id END)
    ON CONFLICT (org_id, lane) DO UPDATE SET
           gap = l.gap + 1, halted_at = coalesce(excluded.halted_at, l.halted_at), halted_by = coalesce(excluded.halted_by, l.halted_by);
    IF v_halts THEN
      PERFORM redrive.note_halt(NEW, v_key);
    END IF;
  END IF;
  IF OLD.behind IS NULL AND NOT v_halts THEN
    PERFORM redrive.promote_next(NEW.org_id, NEW.lane, NEW.updated_at);
  END IF;
  RETURN NULL;
END $$;
