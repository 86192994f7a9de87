-- count_events: how many have a status ($2; NULL: any), in one snapshot. Those that are found by their tasks are counted
-- up to a limit of open ones and of dead ones; NULL beyond it. $1 org.
-- One set less the other: a look-up for each dead task would be as slow as the worst plan for it, and a planner with old
-- numbers takes one.
WITH accepted AS (
  SELECT coalesce(sum(n) FILTER (WHERE name = 'event.inbox'), 0)::bigint AS inbox,
         coalesce(sum(n) FILTER (WHERE name = 'event.acked'), 0)::bigint AS acked,
         coalesce(sum(n) FILTER (WHERE name = 'event.routed'), 0)::bigint AS routed
    FROM redrive.counter WHERE org_id = $1 AND name IN ('event.inbox', 'event.acked', 'event.routed')),
open AS MATERIALIZED (
  SELECT DISTINCT t.received_at, t.event_id FROM redrive.task t
   WHERE $2 IN ('queued', 'failed', 'delivered') AND t.org_id = $1 AND t.open LIMIT 100001),
dead AS MATERIALIZED (
  SELECT DISTINCT t.received_at, t.event_id FROM redrive.task t
   WHERE $2 IN ('failed', 'delivered') AND t.org_id = $1 AND t.reason IS NOT NULL LIMIT 100001),
known AS (
  SELECT (SELECT count(*) FROM open) AS queued, (SELECT count(*) FROM dead) AS dead,
         (SELECT count(*) FROM (SELECT * FROM dead EXCEPT SELECT * FROM open) f) AS failed)
SELECT CASE WHEN $2::text IS NULL THEN inbox + acked + routed
            WHEN $2 = 'received' THEN inbox
            WHEN queued > 100000 OR dead > 100000 THEN NULL
            WHEN $2 = 'queued' THEN queued
            WHEN $2 = 'failed' THEN failed
            ELSE acked + routed - queued - failed END AS n
  FROM accepted, known;
