-- Who is at work, so that people are told when nobody is. Of the whole installation: it holds nothing of any org's.
-- A worker writes its row when it starts and every few seconds, and takes it away when it has drained; one that was killed
-- leaves it behind, for its silence to be seen.
CREATE TABLE redrive.worker (
  id           uuid PRIMARY KEY,
  started_at   timestamptz NOT NULL,
  seen_at      timestamptz NOT NULL,
  host         text NOT NULL,
  pid          integer NOT NULL,
  version      text NOT NULL,
  queues       text[] NOT NULL,
  concurrency  integer NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX worker_seen ON redrive.worker (seen_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON redrive.worker TO redrive_engine;
GRANT SELECT ON redrive.worker TO redrive_app;
GRANT SELECT, DELETE ON redrive.worker TO redrive_janitor;
