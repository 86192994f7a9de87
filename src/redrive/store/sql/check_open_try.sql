-- check_open_try: a leased task has exactly one open try, its lease: no attempt is written for the current fence yet.
-- And no attempt is ahead of its task's fence.
SELECT t.org_id, t.id, format('attempt %s is written (%s), but the task is %s at fence %s', a.fence, a.result, t.state,
                              t.fence) AS detail
  FROM redrive.task t
  JOIN redrive.attempt a ON a.org_id = t.org_id AND a.task_id = t.id
 WHERE a.fence > t.fence OR (t.state = 'leased' AND a.fence = t.fence)
 LIMIT 11;
