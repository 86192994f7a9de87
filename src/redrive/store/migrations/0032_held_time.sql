-- What is held does not age. A task knows since when it is held, and the time until it goes on is none of its life; an endpoint and
-- a lane know, as orgs and the installation do, when they were last let go on: before it is that old since then, nothing of theirs
-- dies of its age without a try.

ALTER TABLE redrive.task ADD COLUMN held_at timestamptz;          -- where it is held: since when. NULL: from before there was this column
ALTER TABLE redrive.endpoint ADD COLUMN resumed_at timestamptz;   -- when it was last enabled or resumed
ALTER TABLE redrive.lane ADD COLUMN resumed_at timestamptz;       -- when its last halt was lifted

-- lift_halt: as before, and the lane remembers when.
CREATE OR REPLACE FUNCTION redrive.lift_halt() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_told text;
BEGIN
  WITH lifted AS (
    UPDATE redrive.lane SET halted_at = NULL, halted_by = NULL, resumed_at = NEW.updated_at
     WHERE org_id = NEW.org_id AND halted_by = NEW.task_id RETURNING org_id, lane),
  woken AS (
    INSERT INTO redrive.lane_wake (org_id, lane) SELECT org_id, lane FROM lifted RETURNING org_id)
  SELECT redrive.tell(ARRAY[''], ARRAY[org_id], ARRAY[NULL]::uuid[])::text INTO v_told FROM woken;
  RETURN NULL;
END $$;
