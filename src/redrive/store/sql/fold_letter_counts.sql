-- fold_letter_counts: the counts of causes that have been counted in shards become one row each, or none where nothing is left of a cause.
-- Answers how many rows were folded. $1 org, $2 limit.
--
-- Nothing is lost that somebody adds meanwhile. A row that a transaction has added to, and has not committed, is passed over. One that
-- is held here makes whoever wants to add to it wait; they find it gone, and their upsert makes a new one. And one that was added to
-- since this statement began is folded with what it has now: it was locked in its newest version, and that is what DELETE returns.
-- What is folded into is written by one janitor at a time, see lead_sweep; it waits for nobody, and so nobody waits in a ring.
WITH picked AS MATERIALIZED (
  SELECT DISTINCT c.state, c.fingerprint FROM (
    SELECT c.state, c.fingerprint FROM redrive.letter_count c
     WHERE c.org_id = $1 AND c.shard >= 0 ORDER BY c.state, c.fingerprint LIMIT $2) c),
held AS MATERIALIZED (
  SELECT c.state, c.fingerprint, c.shard
    FROM picked p JOIN redrive.letter_count c ON c.org_id = $1 AND c.state = p.state AND c.fingerprint = p.fingerprint
     FOR UPDATE OF c SKIP LOCKED),
gone AS (
  DELETE FROM redrive.letter_count c USING held h
   WHERE c.org_id = $1 AND c.state = h.state AND c.fingerprint = h.fingerprint AND c.shard = h.shard
  RETURNING c.state, c.fingerprint, c.shard, c.n),
folded AS (
  INSERT INTO redrive.letter_count AS c (org_id, state, fingerprint, shard, n)
  SELECT $1, g.state, g.fingerprint, -1, sum(g.n) FROM gone g GROUP BY g.state, g.fingerprint HAVING sum(g.n) <> 0
  ON CONFLICT (org_id, state, fingerprint, shard) DO UPDATE SET n = c.n + excluded.n)
SELECT count(*) FILTER (WHERE shard >= 0) AS n FROM gone;
