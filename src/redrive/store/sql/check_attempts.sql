-- check_attempts: `attempts` counts the tries of this generation that ended, given-back leases aside. A redriven
-- generation starts at 1, that of a step at 0 (at 1 until 0055); a message of a broker had been retried there, as it told.
WITH tried AS (
  SELECT t.org_id, t.id, t.attempts, t.generation > 0 AND t.run_id IS NOT NULL AS is_replayed_step,
         CASE WHEN t.generation > 0 THEN CASE WHEN t.run_id IS NULL THEN 1 ELSE 0 END ELSE coalesce(b.retries, 0) END + count(a.fence) AS counted
    FROM redrive.task t
    LEFT JOIN redrive.attempt a ON a.org_id = t.org_id AND a.task_id = t.id AND a.generation = t.generation
     AND a.result IN ('failed', 'lost', 'succeeded')
    LEFT JOIN redrive.broker_message b ON b.org_id = t.org_id AND b.task_id = t.id
   GROUP BY t.org_id, t.id, b.retries)
SELECT org_id, id, format('the task says %s tries, its attempts say %s', attempts, counted) AS detail
  FROM tried WHERE attempts <> counted AND NOT (is_replayed_step AND attempts = counted + 1)
 LIMIT 11;
