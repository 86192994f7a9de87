-- check_runs: a run that is under way has one open step, one in front of people an open dead letter, one that has ended neither; and
-- one that succeeded has all of its steps done.
SELECT r.org_id, r.id, format('the run is %s, with %s open steps, %s open dead letters, %s of %s steps done', r.status, n.open, n.letters,
                              n.done, r.steps) AS detail
  FROM redrive.run r
 CROSS JOIN LATERAL (
   SELECT (SELECT count(*) FROM redrive.task t WHERE t.org_id = r.org_id AND t.run_id = r.id AND t.open) AS open,
          (SELECT count(*) FROM redrive.task t JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
            WHERE t.org_id = r.org_id AND t.run_id = r.id AND d.state = 'open') AS letters,
          (SELECT count(*) FROM redrive.step s JOIN redrive.task t ON t.org_id = s.org_id AND t.id = s.task_id
            WHERE s.org_id = r.org_id AND s.run_id = r.id AND s.done_at IS NOT NULL AND t.state = 'succeeded') AS done) n
 WHERE NOT CASE r.status
         WHEN 'PENDING' THEN n.open = 1 AND n.letters = 0 AND n.done = 0
         WHEN 'RUNNING' THEN n.open = 1
         WHEN 'DLQ_PENDING' THEN n.open = 0 AND n.letters > 0
         WHEN 'SUCCESS' THEN n.open = 0 AND n.done = r.steps
         WHEN 'PARTIAL' THEN n.open = 0 AND n.letters = 0 AND n.done < r.steps
         ELSE n.open = 0 END
 LIMIT 11;
