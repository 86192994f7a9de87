-- How the tries of an endpoint went, for each five minutes in which there were any. The workers add to it every few seconds;
-- the janitor removes what is older than two weeks.

CREATE TABLE redrive.endpoint_history (
  org_id      uuid NOT NULL,
  endpoint_id uuid NOT NULL,
  bucket      timestamptz NOT NULL,  -- its beginning
  succeeded   bigint NOT NULL,
  failed      bigint NOT NULL,
  took_ms     bigint NOT NULL,       -- all tries together
  slowest_ms  integer NOT NULL,
  PRIMARY KEY (org_id, endpoint_id, bucket)
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);
CALL redrive.secure('endpoint_history');
GRANT SELECT ON redrive.endpoint_history TO redrive_app;
GRANT SELECT, INSERT, UPDATE ON redrive.endpoint_history TO redrive_engine;

CREATE INDEX endpoint_history_by_age ON redrive.endpoint_history (bucket);
GRANT SELECT, DELETE ON redrive.endpoint_history TO redrive_janitor;
CREATE POLICY janitor_select ON redrive.endpoint_history FOR SELECT TO redrive_janitor USING (true);
CREATE POLICY janitor_delete ON redrive.endpoint_history FOR DELETE TO redrive_janitor USING (true);
