-- finish_runs: no step follows; answers what became of them. One that would end in part, while a dead letter of it is open, is in front of
-- people again: somebody ran a step behind the one that had died. $1 now (NULL: the database's clock), $2 orgs, $3 runs, $4 statuses. The
-- runs are locked.
UPDATE redrive.run u SET status = s.status, stop_after = NULL, updated_at = c.now,
       finished_at = CASE WHEN s.status <> 'DLQ_PENDING' THEN c.now END
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) c,
       unnest($2::uuid[], $3::uuid[], $4::text[]) AS r(org_id, id, status)
 CROSS JOIN LATERAL (
   SELECT CASE WHEN r.status = 'PARTIAL' AND EXISTS (
            SELECT FROM redrive.task t JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
             WHERE t.org_id = r.org_id AND t.run_id = r.id AND d.state = 'open') THEN 'DLQ_PENDING' ELSE r.status END AS status) s
 WHERE u.org_id = r.org_id AND u.id = r.id
RETURNING u.id, u.status;
