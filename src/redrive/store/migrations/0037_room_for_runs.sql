-- What runs begin with takes room, as events do: 'run.bytes' is counted with the runs, and an org stores both.
DO $$
DECLARE
  t record;
  body CONSTANT text := 'BEGIN
    IF EXISTS (SELECT FROM %1$s) THEN
      INSERT INTO redrive.counter AS c (org_id, name, shard, n)
      SELECT org_id, name, redrive.own_shard(), sum(n)
        FROM (SELECT org_id, ''run.'' || status AS name, %2$s AS n FROM %1$s
              UNION ALL SELECT org_id, ''run.bytes'', %2$s * octet_length(input) FROM %1$s) d
       GROUP BY org_id, name HAVING sum(n) <> 0 ORDER BY org_id, name
      ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
    END IF;
    RETURN NULL;
  END';
BEGIN
  FOR t IN SELECT * FROM (VALUES ('added', '1'), ('removed', '-1')) AS v(rows, sign) LOOP
    EXECUTE format('CREATE OR REPLACE FUNCTION redrive.count_%s_run() RETURNS trigger LANGUAGE plpgsql AS %L', t.rows,
                   format(body, t.rows, t.sign));
  END LOOP;
END $$;

CREATE OR REPLACE VIEW redrive.org_entry WITH (security_invoker = true) AS
SELECT o.org_id, o.name, o.created_at, (SELECT l.spec FROM redrive.org_limits l WHERE l.org_id = o.org_id) AS limits,
       (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c
         WHERE c.org_id = o.org_id AND c.name IN ('event.bytes', 'run.bytes')) AS stored_bytes,
       (SELECT count(*) FROM redrive.endpoint e WHERE e.org_id = o.org_id AND e.deleted_at IS NULL) AS endpoints
  FROM redrive.org o;
