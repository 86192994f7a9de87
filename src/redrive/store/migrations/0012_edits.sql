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
