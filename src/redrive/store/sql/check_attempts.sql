-- check_attempts: `attempts` counts the tries of this generation that ended, given-back leases aside. A redriven
-- generation starts at 1; a message of a broker had been retried there, as it told.
WITH tried AS (
  SELECT t.org_id, t.id, t.attempts,
         CASE WHEN t.generation > 0 THEN 1 ELSE coalesce(b.retries, 0) END + count(a.fence) AS counted
    FROM redrive.task t
    LEFT JOIN redrive.attempt a ON a.org_id = t.org_id AND a.task_id = t.id AND a.generation = t.generation
     AND a.result IN ('failed', 'lost', 'succeeded')
    LEFT JOIN redrive.broker_message b ON b.org_id = t.org_id AND b.task_id = t.id
   GROUP BY t.org_id, t.id, b.retries)
SELECT org_id, id, format('the task says %s tries, its attempts say %s', attempts, counted) AS detail
  FROM tried WHERE attempts <> counted
 LIMIT 11;
