-- fold_notices: what was only counted for a while becomes one notice for each org and kind. Shards that are being counted in are left
-- for the next look; whoever waits for one that goes counts in a new one. $1 now, $2 seconds.
WITH due AS MATERIALIZED (
  SELECT DISTINCT m.org_id, m.kind FROM redrive.notice_more m
   WHERE m.since <= coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8)),
held AS MATERIALIZED (
  SELECT m.org_id, m.kind, m.shard
    FROM due JOIN redrive.notice_more m ON m.org_id = due.org_id AND m.kind = due.kind FOR UPDATE OF m SKIP LOCKED),
gone AS (
  DELETE FROM redrive.notice_more m USING held h
   WHERE m.org_id = h.org_id AND m.kind = h.kind AND m.shard = h.shard
  RETURNING m.*)
INSERT INTO redrive.notice (org_id, id, at, kind, severity, subject_kind, subject_id, text, facts)
SELECT g.org_id, redrive.uuid7(), max(g.until), g.kind, max(g.severity), 'org', g.org_id,
       format('%s between %s and %s UTC. They were too many to be told one by one%s', CASE g.kind
                WHEN 'dead_letter' THEN sum(g.n) || ' more tasks became dead letters'
                ELSE sum(g.n) || ' more notices of the kind ' || g.kind || ' were due' END,
              to_char(min(g.since) AT TIME ZONE 'UTC', 'HH24:MI:SS'), to_char(max(g.until) AT TIME ZONE 'UTC', 'HH24:MI:SS'),
              CASE g.kind WHEN 'dead_letter' THEN ': see the groups of dead letters for their causes.' ELSE '.' END),
       jsonb_build_object('more', sum(g.n), 'since', min(g.since), 'until', max(g.until))
  FROM gone g GROUP BY g.org_id, g.kind;
