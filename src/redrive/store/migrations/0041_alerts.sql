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

-- Which rules an org has set otherwise than they are: thresholds, or that one is off. core/alerts.py has the rules and what they can be.
CREATE TABLE redrive.alert_rule (
  org_id      uuid NOT NULL REFERENCES redrive.org,
  rule        text NOT NULL,
  spec        jsonb NOT NULL,
  updated_at  timestamptz NOT NULL,
  PRIMARY KEY (org_id, rule)
);
CALL redrive.secure('alert_rule');
GRANT SELECT, INSERT, UPDATE, DELETE ON redrive.alert_rule TO redrive_app;
GRANT SELECT ON redrive.alert_rule TO redrive_engine;

-- Incidents. Each is opened, and ended, in one transaction with the notice that tells of it.
CREATE TABLE redrive.alert (
  org_id         uuid NOT NULL REFERENCES redrive.org,
  id             uuid NOT NULL,
  rule           text NOT NULL,
  severity       text NOT NULL CHECK (severity IN ('info', 'warning', 'error')),
  subject_kind   text NOT NULL,
  subject_id     uuid,
  subject_name   text,
  opened_at      timestamptz NOT NULL,
  over_at        timestamptz,               -- NULL: it fires
  text           text NOT NULL,             -- for a person: what happened, why, what to do
  over_text      text,
  saw            jsonb NOT NULL,            -- the numbers when it opened, and the threshold
  notice_id      uuid NOT NULL,             -- that told of it; several may share one
  over_notice_id uuid,
  PRIMARY KEY (org_id, id),
  CHECK ((over_at IS NULL) = (over_text IS NULL) AND (over_at IS NULL) = (over_notice_id IS NULL))
);
-- Of one rule and subject there is one that fires, whoever evaluates.
CREATE UNIQUE INDEX alert_firing ON redrive.alert (org_id, rule, coalesce(subject_id::text, subject_name, '')) WHERE over_at IS NULL;
CREATE INDEX alert_by_age ON redrive.alert (org_id, opened_at, id);
CREATE INDEX alert_by_rule ON redrive.alert (org_id, rule, opened_at, id);
CREATE INDEX alert_by_end ON redrive.alert (org_id, over_at, id) WHERE over_at IS NOT NULL;
CALL redrive.secure('alert');
GRANT SELECT ON redrive.alert TO redrive_app;
GRANT SELECT, INSERT ON redrive.alert TO redrive_engine;
GRANT UPDATE (over_at, over_text, over_notice_id) ON redrive.alert TO redrive_engine;
GRANT SELECT, DELETE ON redrive.alert TO redrive_janitor;
CREATE POLICY janitor_select ON redrive.alert FOR SELECT TO redrive_janitor USING (true);
CREATE POLICY janitor_delete ON redrive.alert FOR DELETE TO redrive_janitor USING (true);

-- When somebody last looked at all rules, and for how long without a break: what fell silent before that is not held against anybody.
-- One row; whoever moves its time on has the round to itself.
CREATE TABLE redrive.alert_round (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  since     timestamptz NOT NULL,
  began_at  timestamptz NOT NULL
) WITH (fillfactor = 10);
GRANT SELECT, INSERT, UPDATE ON redrive.alert_round TO redrive_engine;

-- What rounds look for, whatever the number of endpoints: breakers that are not closed, and what Redrive itself disabled.
CREATE INDEX endpoint_state_shut ON redrive.endpoint_state (org_id, endpoint_id) WHERE breaker <> 'closed';
ALTER TABLE redrive.endpoint ADD COLUMN disabled_by_engine boolean NOT NULL DEFAULT false;
SET LOCAL ROLE redrive_engine;
UPDATE redrive.endpoint e SET disabled_by_engine = true
 WHERE e.disabled_at IS NOT NULL
   AND EXISTS (SELECT FROM redrive.audit a WHERE a.org_id = e.org_id AND a.subject_id = e.id AND a.action = 'endpoint.disable'
                  AND a.actor = 'engine' AND a.at = e.disabled_at);
RESET ROLE;
CREATE INDEX endpoint_by_engine ON redrive.endpoint (org_id, id) WHERE disabled_by_engine AND deleted_at IS NULL;

-- open_transactions: who keeps a transaction open on this database for so long, oldest first. As the owner of the schema, who sees what
-- the login role may see: all of them where it has pg_read_all_stats, else those of its own. Never what they ask.
CREATE FUNCTION redrive.open_transactions(p_before timestamptz, p_most integer)
RETURNS TABLE (pid integer, application text, usename text, state text, since timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp AS $$
  SELECT * FROM (
    SELECT a.pid, left(a.application_name, 100), a.usename::text, a.state, a.xact_start
      FROM pg_stat_activity a
     WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.xact_start < p_before AND a.pid <> pg_backend_pid()
    UNION ALL
    SELECT NULL, left(p.gid, 100), p.owner::text, 'prepared', p.prepared
      FROM pg_prepared_xacts p WHERE p.database = current_database() AND p.prepared < p_before) t(pid, application, usename, state, since)
   ORDER BY t.since LIMIT p_most
$$;
REVOKE ALL ON FUNCTION redrive.open_transactions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION redrive.open_transactions TO redrive_engine;
