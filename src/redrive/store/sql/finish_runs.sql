-- finish_runs: no step follows. $1 now (NULL: the database's clock), $2 orgs, $3 runs, $4 statuses. The runs are locked.
UPDATE redrive.run u SET status = r.status, stop_after = NULL, updated_at = c.now, finished_at = c.now
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) c,
       unnest($2::uuid[], $3::uuid[], $4::text[]) AS r(org_id, id, status)
 WHERE u.org_id = r.org_id AND u.id = r.id;
