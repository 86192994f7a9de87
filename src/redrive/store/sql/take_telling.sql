-- take_telling: tell the numbers of the installation from now on, or go on with it. Answers whether we do, and who did before.
-- $1 now (NULL: the database's clock), $2 server, $3 its name, $4 for how many seconds. Of two who ask at once the second waits for the
-- first, and finds the row taken.
WITH taken AS (
  INSERT INTO redrive.teller AS t (server, name, until)
  SELECT $2::uuid, $3::text, c.now + make_interval(secs => $4::float8) FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) c
  ON CONFLICT (singleton) DO UPDATE SET server = excluded.server, name = excluded.name, until = excluded.until
   WHERE t.server IS NULL OR t.server = excluded.server OR t.until <= coalesce($1::timestamptz, clock_timestamp())
  RETURNING t.server)
SELECT EXISTS (SELECT FROM taken) AS ours, (SELECT t.name FROM redrive.teller t WHERE t.singleton) AS name;
