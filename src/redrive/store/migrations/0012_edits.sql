-- Edited payloads beside the originals, and lists of dead letters whose pages cost the same at any length.

-- What a person changed before a replay. The event stays as it was handed in. Each row belongs to the generation that it
-- began; a row without body and headers is the return to the original. Never updated.
CREATE TABLE redrive.edit (
  org_id      uuid NOT NULL,
  task_id     uuid NOT NULL,
  number      integer NOT NULL CHECK (number > 0),
  generation  integer NOT NULL,
  body        bytea,                    -- NULL: the event's
  headers     text,                     -- a JSON object, over the endpoint's; NULL: none
  diff        jsonb NOT NULL,           -- against the original, redacted
  diff_is_cut boolean NOT NULL,
  at          timestamptz NOT NULL,
  by          text NOT NULL,
  because     text,
  PRIMARY KEY (org_id, task_id, number),
  FOREIGN KEY (org_id, task_id) REFERENCES redrive.dead_letter ON DELETE CASCADE
);
CALL redrive.secure('edit');
GRANT SELECT, INSERT ON redrive.edit TO redrive_app, redrive_engine;

-- The edit in force. No index knows of it: a claim, which copies it, stays a heap-only update.
ALTER TABLE redrive.task ADD COLUMN edit integer;

-- One index in the list's order for each filter.
CREATE INDEX dead_letter_by_kind ON redrive.dead_letter (org_id, state, kind, created_at, task_id);
CREATE INDEX dead_letter_by_reason ON redrive.dead_letter (org_id, state, reason, created_at, task_id);
CREATE INDEX dead_letter_by_category ON redrive.dead_letter (org_id, state, category, created_at, task_id);
CREATE INDEX dead_letter_by_system ON redrive.dead_letter (org_id, state, external_system, created_at, task_id)
  WHERE external_system IS NOT NULL;

-- How often a value stands in the table says nothing about one org's letters in one state. A planner that trusts it reads
-- the list by age and throws away, where the value's own index has exactly what is asked for. So it is told that any value
-- is rare; the queries hide theirs from it (see list_dead_letters.sql). It learns this when the table is analysed.
ALTER TABLE redrive.dead_letter
  ALTER COLUMN state SET (n_distinct = 5),
  ALTER COLUMN kind SET (n_distinct = 1000),
  ALTER COLUMN reason SET (n_distinct = 1000),
  ALTER COLUMN category SET (n_distinct = 1000),
  ALTER COLUMN event_type SET (n_distinct = 1000),
  ALTER COLUMN external_system SET (n_distinct = 1000),
  ALTER COLUMN endpoint_id SET (n_distinct = 1000),
  ALTER COLUMN fingerprint SET (n_distinct = 1000);
ANALYZE redrive.dead_letter;
