-- list_runs: newest first. $1 org, $2 workflow, $3 status, $4 since, $5 until, $6 and $7 after, $8 limit.
SELECT r.id, r.workflow, r.version, r.steps, r.status, r.correlation_id, r.replays, r.created_at, r.created_by, r.updated_at,
       r.started_at, r.finished_at, r.cancelled_at,
       (SELECT count(*) FROM redrive.step s WHERE s.org_id = r.org_id AND s.run_id = r.id AND s.done_at IS NOT NULL) AS done
  FROM redrive.run r
 WHERE r.org_id = $1 AND ($2::text IS NULL OR r.workflow = $2) AND ($3::text IS NULL OR r.status = $3)
   AND ($4::timestamptz IS NULL OR r.created_at >= $4) AND ($5::timestamptz IS NULL OR r.created_at < $5)
   AND ($6::timestamptz IS NULL OR (r.created_at, r.id) < ($6, $7::uuid))
 ORDER BY r.created_at DESC, r.id DESC LIMIT $8;
