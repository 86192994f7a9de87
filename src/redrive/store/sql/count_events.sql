-- count_events: how many have a status ($2; NULL: any), in one snapshot. Those that are found by their tasks are counted
-- up to a limit; NULL beyond it. $1 org.
WITH accepted AS (
  SELECT coalesce(sum(n) FILTER (WHERE name = 'event.inbox'), 0)::bigint AS inbox,
         coalesce(sum(n) FILTER (WHERE name = 'event.acked'), 0)::bigint AS acked,
         coalesce(sum(n) FILTER (WHERE name = 'event.routed'), 0)::bigint AS routed
    FROM redrive.counter WHERE org_id = $1 AND name IN ('event.inbox', 'event.acked', 'event.routed')),
queued AS (
  SELECT CASE WHEN count(*) <= 100000 THEN count(*) END AS n FROM (
    SELECT DISTINCT t.received_at, t.event_id FROM redrive.task t
     WHERE $2 IN ('queued', 'delivered') AND t.org_id = $1 AND t.open LIMIT 100001) q),
failed AS (
  SELECT CASE WHEN count(*) <= 100000 THEN count(*) END AS n FROM (
    SELECT DISTINCT t.received_at, t.event_id FROM redrive.task t
     WHERE $2 IN ('failed', 'delivered') AND t.org_id = $1 AND t.reason IS NOT NULL AND (
       -- No join, which a planner with old numbers would make of every dead task with every open one.
       SELECT true FROM redrive.task o
        WHERE o.org_id = t.org_id AND o.received_at = t.received_at AND o.event_id = t.event_id AND o.open LIMIT 1) IS NULL
     LIMIT 100001) f)
SELECT CASE WHEN $2::text IS NULL THEN inbox + acked + routed
            WHEN $2 = 'received' THEN inbox
            WHEN $2 = 'queued' THEN queued.n
            WHEN $2 = 'failed' THEN failed.n
            ELSE acked + routed - queued.n - failed.n END AS n
  FROM accepted, queued, failed;
