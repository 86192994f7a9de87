-- release_held: held tasks wait again, with the due time that they had. $1 org, $2 endpoint, $3 at most.
WITH released AS (
  UPDATE redrive.task t SET state = 'waiting', updated_at = clock_timestamp()
   WHERE (t.org_id, t.id) IN (
     SELECT h.org_id, h.id FROM redrive.task h
      WHERE h.org_id = $1 AND h.endpoint_id = $2 AND h.open AND NOT h.live ORDER BY h.id LIMIT $3 FOR UPDATE)
  RETURNING 1)
SELECT count(*)::int AS n, pg_notify('redrive_due', '') IS NULL AS told FROM released;
