-- check_attempts: `attempts` counts the tries of this generation that ended, given-back leases aside. A redriven
-- generation starts at 1.
WITH tried AS (
  SELECT t.org_id, t.id, t.attempts,
         CASE WHEN t.generation > 0 THEN 1 ELSE 0 END + count(a.fence) AS counted
    FROM redrive.task t
    LEFT JOIN redrive.attempt a ON a.org_id = t.org_id AND a.task_id = t.id AND a.generation = t.generation
     AND a.result IN ('failed', 'lost', 'succeeded')
   GROUP BY t.org_id, t.id)
SELECT org_id, id, format('the task says %s tries, its attempts say %s', attempts, counted) AS detail
  FROM tried WHERE attempts <> counted
 LIMIT 11;
