-- take_telling: tell the numbers of the installation from now on, or go on with it. Answers whether we do, and who did before.
-- $1 now (NULL: the database's clock), $2 server, $3 its name, $4 for how many seconds. Of two who ask at once the second waits for the
-- first, and finds the row taken.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
taken AS (
  UPDATE redrive.teller t SET server = $2::uuid, name = $3::text, until = clock.now + make_interval(secs => $4::float8)
    FROM clock
   WHERE t.singleton AND (t.server IS NULL OR t.server = $2::uuid OR t.until <= clock.now)
  RETURNING t.server)
SELECT EXISTS (SELECT FROM taken) AS ours, t.name FROM redrive.teller t WHERE t.singleton;
