-- check_counters: the counters kept on write are what a count over all rows gives.
WITH counted AS (
  SELECT org_id, CASE WHEN tasks > 0 THEN 'event.routed' WHEN acked_at IS NULL THEN 'event.inbox' ELSE 'event.acked' END AS name,
         count(*) AS n
    FROM redrive.event GROUP BY 1, 2
  UNION ALL
  SELECT org_id, 'event.bytes', sum(octet_length(body)) FROM redrive.event GROUP BY 1
  UNION ALL
  SELECT org_id, 'task.' || state, count(*) FROM redrive.task GROUP BY 1, 2
  UNION ALL
  SELECT org_id, 'dead.' || state, count(*) FROM redrive.dead_letter GROUP BY 1, 2
  UNION ALL
  SELECT org_id, 'retrying', count(*) FROM redrive.task
   WHERE open AND attempts > 0 GROUP BY 1
  UNION ALL
  SELECT e.org_id, f.name, sum(f.n)
    FROM (SELECT org_id, count(*) FILTER (WHERE open) AS open, count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
                 count(*) FILTER (WHERE state = 'dead') AS dead
            FROM redrive.task WHERE has_siblings GROUP BY org_id, event_id) e
   CROSS JOIN LATERAL redrive.further_of(e.open, e.succeeded, e.dead) o
   CROSS JOIN LATERAL (VALUES ('further.open', o.further_open), ('further.succeeded', o.further_succeeded),
                              ('further.dead', o.further_dead)) AS f(name, n)
   GROUP BY 1, 2
  UNION ALL
  SELECT org_id, 'run.' || status, count(*) FROM redrive.run GROUP BY 1, 2
  UNION ALL
  SELECT org_id, 'run.bytes', sum(octet_length(input)) FROM redrive.run GROUP BY 1),
kept AS (
  SELECT org_id, name, sum(n)::bigint AS n FROM redrive.counter
   WHERE name = 'retrying' OR split_part(name, '.', 1) IN ('event', 'task', 'further', 'dead', 'run')
   GROUP BY org_id, name)
SELECT org_id, org_id AS id, format('counter %s is %s, the rows are %s', name, coalesce(k.n, 0), coalesce(c.n, 0)) AS detail
  FROM counted c FULL JOIN kept k USING (org_id, name)
 WHERE coalesce(c.n, 0) <> coalesce(k.n, 0)
 ORDER BY org_id, name
 LIMIT 11;
