-- check_fences: every fence that a task had, but the one now leased, ended in exactly one attempt: 1, 2, 3 … without a gap.
WITH tried AS (
  SELECT t.org_id, t.id, t.fence - CASE t.state WHEN 'leased' THEN 1 ELSE 0 END AS ended, t.fence, t.state,
         count(a.fence) AS n, coalesce(min(a.fence), 1) AS lowest
    FROM redrive.task t
    LEFT JOIN redrive.attempt a ON a.org_id = t.org_id AND a.task_id = t.id
     AND a.fence <= t.fence - CASE t.state WHEN 'leased' THEN 1 ELSE 0 END
   GROUP BY t.org_id, t.id)
SELECT org_id, id, format('%s leases ended, %s attempts are written', ended, n) AS detail
  FROM tried WHERE n <> ended OR lowest < 1
 LIMIT 11;
