-- check_success: a succeeded task has exactly one successful attempt, its last; any other task has none.
WITH won AS (
  SELECT t.org_id, t.id, t.state, t.fence, count(a.fence) AS n, max(a.fence) AS last
    FROM redrive.task t
    LEFT JOIN redrive.attempt a ON a.org_id = t.org_id AND a.task_id = t.id AND a.result = 'succeeded'
   GROUP BY t.org_id, t.id)
SELECT org_id, id, format('the task is %s at fence %s with %s successful attempts', state, fence, n) AS detail
  FROM won
 WHERE CASE state WHEN 'succeeded' THEN n <> 1 OR last <> fence ELSE n <> 0 END
 LIMIT 11;
