-- Lanes: a next head whatever happens meanwhile, a gap that is known by its places, and halts that do not outlive their letter.

-- promote_next: the first of a lane becomes its head, and is due from then on. Called where a head has ended, in the same transaction.
-- The first one may be ending at this moment (a person skips it, it expires): then this waits for that, and takes the one behind it.
-- What waited behind a halt begins when that was lifted.
CREATE OR REPLACE FUNCTION redrive.promote_next(p_org uuid, p_lane uuid, p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_next uuid;
BEGIN
  LOOP
    SELECT n.id INTO v_next FROM redrive.task n
     WHERE n.org_id = p_org AND n.lane = p_lane AND n.behind AND n.open ORDER BY n.place LIMIT 1;
    EXIT WHEN NOT FOUND;
    -- In one expression, so that nobody takes the index of those behind for the way to a task that is named.
    UPDATE redrive.task t SET behind = NULL, due_at = greatest(t.due_at, p_now),
           begun_at = greatest(t.begun_at, (SELECT l.resumed_at FROM redrive.lane l WHERE l.org_id = p_org AND l.lane = p_lane))
     WHERE t.org_id = p_org AND t.id = v_next AND coalesce(t.behind AND t.open, false);
    EXIT WHEN FOUND;
  END LOOP;
END $$;

-- What died of a lane, by its place, until a later one of the lane is delivered: as many as there are before the one that is sent, so
-- large is the gap that it carries, and its delivery has told of them. What is redriven in its place goes first if its row is
-- still there (it fills its own gap); if not, it comes out of order. (lane.gap and lane.last_place said the same with one
-- number each, and are not kept any more. Workers of the version before still read them.)
CREATE TABLE redrive.lane_gap (
  org_id  uuid NOT NULL,
  lane    uuid NOT NULL,
  place   bigint NOT NULL,
  died_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, lane, place)
) WITH (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
CREATE INDEX lane_gap_age ON redrive.lane_gap (died_at);
CALL redrive.secure('lane_gap');
GRANT SELECT, INSERT, UPDATE, DELETE ON redrive.lane_gap TO redrive_app, redrive_engine;

SET LOCAL ROLE redrive_engine;
INSERT INTO redrive.lane_gap (org_id, lane, place, died_at)
SELECT t.org_id, t.lane, t.place, t.updated_at
  FROM redrive.dead_letter d
  JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id AND t.state = 'dead'
  JOIN redrive.lane l ON l.org_id = t.org_id AND l.lane = t.lane AND l.gap > 0 AND t.place > coalesce(l.last_place, 0)
    ON CONFLICT DO NOTHING;
UPDATE redrive.lane SET gap = 0, last_place = NULL WHERE gap > 0 OR last_place IS NOT NULL;
RESET ROLE;

-- A task of a lane has ended: it leaves a gap, or what died before it is told, and the lane moves on or halts. What died while it
-- was under way was not told by it. Only a halt touches the row of the lane: what dies behind others waits for nobody.
CREATE OR REPLACE FUNCTION redrive.end_in_lane() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_halts boolean := false;
  v_key   text;
BEGIN
  IF NEW.state = 'succeeded' THEN
    DELETE FROM redrive.lane_gap g
     WHERE g.org_id = NEW.org_id AND g.lane = NEW.lane AND g.place <= NEW.place AND g.died_at <= coalesce(NEW.leased_at, NEW.updated_at);
  ELSE
    INSERT INTO redrive.lane_gap (org_id, lane, place, died_at) VALUES (NEW.org_id, NEW.lane, NEW.place, NEW.updated_at)
    ON CONFLICT DO NOTHING;  -- it died before, and was redriven in its place
    IF OLD.behind IS NULL AND NEW.reason <> 'skipped' THEN
      -- Held still: who deletes the endpoint lifts its halts, and must see this one.
      PERFORM FROM redrive.endpoint e
        WHERE e.org_id = NEW.org_id AND e.id = NEW.endpoint_id AND e.on_block = 'halt' AND e.deleted_at IS NULL FOR SHARE;
      v_halts := FOUND;
    END IF;
  END IF;
  IF v_halts THEN
    IF NEW.lane IS DISTINCT FROM NEW.endpoint_id THEN
      v_key := (SELECT e.ordering_key FROM redrive.event e WHERE e.org_id = NEW.org_id AND e.id = NEW.event_id);
    END IF;
    INSERT INTO redrive.lane (org_id, lane, endpoint_id, ordering_key, halted_at, halted_by)
    VALUES (NEW.org_id, NEW.lane, NEW.endpoint_id, v_key, NEW.updated_at, NEW.id)
    ON CONFLICT (org_id, lane) DO UPDATE SET halted_at = excluded.halted_at, halted_by = excluded.halted_by;
    PERFORM redrive.note_halt(NEW, v_key);
  ELSIF OLD.behind IS NULL THEN
    PERFORM redrive.promote_next(NEW.org_id, NEW.lane, NEW.updated_at);
  END IF;
  RETURN NULL;
END $$;

-- What halts a lane stays until a person acts, however old it is: the janitor must see it. What nobody needs to know of a lane any
-- more it removes.
GRANT SELECT, DELETE ON redrive.lane, redrive.lane_gap TO redrive_janitor;
DO $$
DECLARE t record;
BEGIN
  FOR t IN SELECT v.name, c.command FROM unnest(ARRAY['lane', 'lane_gap']) AS v(name), unnest(ARRAY['SELECT', 'DELETE']) AS c(command) LOOP
    EXECUTE format('CREATE POLICY %I ON redrive.%I FOR %s TO redrive_janitor USING (true)', 'janitor_' || lower(t.command), t.name, t.command);
  END LOOP;
END $$;

-- Where a bulk retry puts an item, where nobody said so: decided when it is written down. The first one that is retried may lift the halt
-- of its lane, and the others go where they would have gone with it.
ALTER TABLE redrive.operation_item ADD COLUMN lane_order text CHECK (lane_order IN ('in_place', 'tail'));

-- lane_order: where a dead task goes if it is retried now and nobody says where. p_halts: whether any lane is halted at all.
CREATE FUNCTION redrive.lane_order(p_org uuid, p_task uuid, p_halts boolean) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN p_halts AND EXISTS (
                SELECT FROM redrive.task t JOIN redrive.lane l ON l.org_id = t.org_id AND l.lane = t.lane AND l.halted_at IS NOT NULL
                 WHERE t.org_id = p_org AND t.id = p_task) THEN 'in_place' ELSE 'tail' END
$$;

-- How long a head has kept its lane: from its first failed try since it was accepted or redriven, moved on by all the time that it was
-- due and not tried (held, its breaker open, no worker): max_block_s bounds how long a receiver fails, not how long nobody asks it.
ALTER TABLE redrive.task ADD COLUMN blocked_since timestamptz;
