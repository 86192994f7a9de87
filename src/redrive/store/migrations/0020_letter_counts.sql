-- How many dead letters each cause has, kept on write: a list of groups costs the same with a thousand letters and with a million.

-- One row for an org, a state, a fingerprint and a shard, as the counters have them (see own_shard). Apart from the counters, which
-- every page reads all of. The janitor folds the shards: see fold_letter_counts.sql.
-- `size` tells roughly how big n is, in steps of a tenth, so that the biggest are found by an index which is seldom written: as long as
-- the size stays, a row is updated in its page and no index hears of it.
CREATE TABLE redrive.letter_count (
  org_id       uuid NOT NULL,
  state        text NOT NULL,
  fingerprint  text NOT NULL,
  shard        smallint NOT NULL,  -- -1: folded
  n            bigint NOT NULL,    -- negative where letters left this state in another shard than they came in
  size         smallint NOT NULL GENERATED ALWAYS AS (
                 CASE WHEN n <= 0 THEN 0 ELSE floor(8 * ln(n::float8) / ln(2::float8)) + 1 END) STORED,
  PRIMARY KEY (org_id, state, fingerprint, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
-- Of a cause that has letters at least one row is above zero. And what is to be folded, however much is.
CREATE INDEX letter_count_by_size ON redrive.letter_count (org_id, state, size, fingerprint) WHERE size > 0;
CREATE INDEX letter_count_in_shards ON redrive.letter_count (org_id, state, fingerprint) WHERE shard >= 0;
CALL redrive.secure('letter_count');
GRANT SELECT, INSERT, UPDATE ON redrive.letter_count TO redrive_app, redrive_engine;
GRANT SELECT, INSERT, UPDATE, DELETE ON redrive.letter_count TO redrive_janitor;
CREATE POLICY janitor_select ON redrive.letter_count FOR SELECT TO redrive_janitor USING (true);
CREATE POLICY janitor_insert ON redrive.letter_count FOR INSERT TO redrive_janitor WITH CHECK (true);
CREATE POLICY janitor_update ON redrive.letter_count FOR UPDATE TO redrive_janitor USING (true);
CREATE POLICY janitor_delete ON redrive.letter_count FOR DELETE TO redrive_janitor USING (true);

-- Nobody writes letters from here to the end: each is counted once, either below or by the triggers.
LOCK TABLE redrive.dead_letter IN SHARE ROW EXCLUSIVE MODE;

-- The counters are those of 0002 and 0011. They come first: where transactions have to share a shard, whoever would meet another at
-- the count of a cause has met it at the counter of its state before, and waits there.
DO $$
DECLARE
  t record;
  counted CONSTANT text := '
DECLARE
  v_shard smallint;
BEGIN
  IF NOT EXISTS (SELECT FROM %1$s) THEN
    RETURN NULL;
  END IF;
  v_shard := redrive.own_shard();
  INSERT INTO redrive.counter AS c (org_id, name, shard, n)
  SELECT org_id, ''dead.'' || state, v_shard, sum(n) FROM (%2$s) d
   GROUP BY org_id, state HAVING sum(n) <> 0 ORDER BY org_id, state
  ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
  INSERT INTO redrive.letter_count AS c (org_id, state, fingerprint, shard, n)
  SELECT org_id, state, fingerprint, v_shard, sum(n) FROM (%2$s) d
   GROUP BY org_id, state, fingerprint HAVING sum(n) <> 0 ORDER BY org_id, state, fingerprint
  ON CONFLICT (org_id, state, fingerprint, shard) DO UPDATE SET n = c.n + excluded.n;
  RETURN NULL;
END';
  came CONSTANT text := 'SELECT org_id, state, fingerprint, 1 AS n FROM added';
  went CONSTANT text := 'SELECT org_id, state, fingerprint, -1 AS n FROM removed';
BEGIN
  FOR t IN SELECT * FROM (VALUES
      ('added', 'added', came), ('moved', 'added', went || ' UNION ALL ' || came), ('removed', 'removed', went))
        AS v(name, rows, changes) LOOP
    EXECUTE format('CREATE OR REPLACE FUNCTION redrive.count_%s_dead_letter() RETURNS trigger LANGUAGE plpgsql AS %L', t.name,
      format(counted, t.rows, t.changes));
  END LOOP;
END $$;

-- What is stored already. As the engine: the owner of the tables sees no org's rows.
SET LOCAL ROLE redrive_engine;
INSERT INTO redrive.letter_count (org_id, state, fingerprint, shard, n)
SELECT org_id, state, fingerprint, -1, count(*) FROM redrive.dead_letter GROUP BY org_id, state, fingerprint;
RESET ROLE;
