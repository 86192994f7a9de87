-- The age of a task counts from when it was received or last redriven, and nothing moves that: neither being held nor a halted lane.
-- (task.held_at is no longer read or written.)

-- promote_next: the first of a lane becomes its head, and is due from then on. Called where a head has ended, in the same transaction.
-- The first one may be ending at this moment (a person skips it, it expires): then this waits for that, and takes the one behind it.
CREATE OR REPLACE FUNCTION redrive.promote_next(p_org uuid, p_lane uuid, p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_next uuid;
BEGIN
  LOOP
    SELECT n.id INTO v_next FROM redrive.task n
     WHERE n.org_id = p_org AND n.lane = p_lane AND n.behind AND n.open ORDER BY n.place LIMIT 1;
    EXIT WHEN NOT FOUND;
    -- In one expression, so that nobody takes the index of those behind for the way to a task that is named.
    UPDATE redrive.task t SET behind = NULL, due_at = greatest(t.due_at, p_now)
     WHERE t.org_id = p_org AND t.id = v_next AND coalesce(t.behind AND t.open, false);
    EXIT WHEN FOUND;
  END LOOP;
END $$;
