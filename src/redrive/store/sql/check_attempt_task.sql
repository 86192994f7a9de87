-- check_attempt_task: every attempt belongs to a task.
SELECT a.org_id, a.task_id AS id, format('attempt %s (%s) belongs to no task', a.fence, a.result) AS detail
  FROM redrive.attempt a
 WHERE NOT EXISTS (SELECT FROM redrive.task t WHERE t.org_id = a.org_id AND t.id = a.task_id)
 LIMIT 11;
