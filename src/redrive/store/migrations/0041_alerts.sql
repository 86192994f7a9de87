-- Background jobs, and alerts: what is not as it should be, since when, and that people were told.

-- How jobs go, whichever process runs them. Of the whole installation: it holds nothing of any org's. Each process that runs some
-- reports them every few seconds, and says so when it ends; of one that was killed, the silence is seen.
CREATE TABLE redrive.job (
  name          text PRIMARY KEY,
  every_s       double precision NOT NULL,  -- how often it is expected to succeed
  since         timestamptz NOT NULL,       -- that somebody runs it without a break
  seen_at       timestamptz NOT NULL,       -- when somebody last said that they run it
  left_at       timestamptz,                -- when who ran it ended in good order; NULL: it is expected to run
  began_at      timestamptz,
  ended_at      timestamptz,
  succeeded_at  timestamptz,
  failed_at     timestamptz,
  error         text                        -- of the last failure, which may be long ago
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
GRANT SELECT, INSERT, UPDATE ON redrive.job TO redrive_engine;
GRANT SELECT ON redrive.job TO redrive_app;
GRANT SELECT, DELETE ON redrive.job TO redrive_janitor;
