-- Totals count quiet failures by a reason of their own, `quiet`: alert rules on metrics leave them out. Otherwise as in 0047.
DO $$
DECLARE
  t record;
  counted CONSTANT text := '
DECLARE
  v_shard smallint;
BEGIN
  IF NOT EXISTS (SELECT FROM added) THEN
    RETURN NULL;
  END IF;
  v_shard := redrive.own_shard();
  -- The row of the minute comes before the counters, as where tasks move.
  INSERT INTO redrive.pulse AS p (org_id, minute, shard, unjudged)
  SELECT d.org_id, date_bin(''1 minute'', d.created_at, ''epoch''), v_shard, count(*)
    FROM (%2$s) d JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
   WHERE (d.reason = ''skipped'' OR d.state = ''ignored'' OR starts_with(d.event_type, ''redrive.'')) AND t.is_test IS NOT TRUE
   GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (org_id, minute, shard) DO UPDATE SET unjudged = p.unjudged + excluded.unjudged;
  INSERT INTO redrive.counter AS c (org_id, name, shard, n)
  SELECT org_id, ''dead.'' || state, v_shard, sum(n) FROM (%1$s) d
   GROUP BY org_id, state HAVING sum(n) <> 0 ORDER BY org_id, state
  ON CONFLICT (org_id, name, shard) DO UPDATE SET n = c.n + excluded.n;
  INSERT INTO redrive.letter_count AS c (org_id, state, fingerprint, shard, n)
  SELECT org_id, state, fingerprint, v_shard, sum(n) FROM (%1$s) d
   GROUP BY org_id, state, fingerprint HAVING sum(n) <> 0 ORDER BY org_id, state, fingerprint
  ON CONFLICT (org_id, state, fingerprint, shard) DO UPDATE SET n = c.n + excluded.n;
  INSERT INTO redrive.tally (org_id, minute, reason, category, deaths)
  SELECT d.org_id, date_bin(''1 minute'', d.created_at, ''epoch''), CASE d.state WHEN ''ignored'' THEN ''quiet'' ELSE d.reason END, d.category, count(*)
    FROM (%2$s) d JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
   WHERE t.is_test IS NOT TRUE
   GROUP BY 1, 2, 3, 4;
  RETURN NULL;
END';
  came CONSTANT text := 'SELECT org_id, state, fingerprint, 1 AS n FROM added';
  went CONSTANT text := 'SELECT org_id, state, fingerprint, -1 AS n FROM removed';
BEGIN
  FOR t IN SELECT * FROM (VALUES
      ('added', came, 'SELECT * FROM added'),
      ('moved', went || ' UNION ALL ' || came, 'SELECT a.org_id, a.task_id, a.created_at, a.reason, a.category, a.event_type, a.state FROM added a
        WHERE (a.org_id, a.task_id, a.generation) NOT IN (SELECT r.org_id, r.task_id, r.generation FROM removed r)'))
        AS v(name, changes, deaths) LOOP
    EXECUTE format('CREATE OR REPLACE FUNCTION redrive.count_%s_dead_letter() RETURNS trigger LANGUAGE plpgsql AS %L', t.name,
      format(counted, t.changes, t.deaths));
  END LOOP;
END $$;
