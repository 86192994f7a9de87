-- What was made under an Idempotency-Key, where the thing made has an id of its own (an event's id is the key itself).
CREATE TABLE redrive.idempotency (
  org_id      uuid NOT NULL REFERENCES redrive.org,
  scope       text NOT NULL CHECK (length(scope) BETWEEN 1 AND 50),
  key         text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
  body_digest bytea NOT NULL,
  subject_id  uuid,           -- NULL only within the transaction that makes it
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (org_id, scope, key)
);

-- Row-level security, as for every tenant table.
ALTER TABLE redrive.idempotency ENABLE ROW LEVEL SECURITY;
ALTER TABLE redrive.idempotency FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON redrive.idempotency TO redrive_app
  USING (org_id = (SELECT redrive.current_org())) WITH CHECK (org_id = (SELECT redrive.current_org()));
CREATE POLICY engine ON redrive.idempotency TO redrive_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON redrive.idempotency TO redrive_app, redrive_engine;
