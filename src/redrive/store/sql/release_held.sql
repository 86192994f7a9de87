-- release_held: held tasks that nothing holds any more wait again, with the due time that they had; answers how many.
-- What holds: the installation or the org is paused, or the endpoint is there and disabled or paused. Where that is lifted,
-- whoever lifted it calls this; workers call it at intervals, for what somebody left behind.
-- $1 org (NULL: all of them), $2 at most, $3 now. The places with held tasks are found by stepping through the index of
-- them, one look-up for each place: it costs what the number of shut endpoints costs, not what they hold.
WITH RECURSIVE orgs AS (
  SELECT coalesce($1::uuid, (
           SELECT t.org_id FROM redrive.task t WHERE t.open AND NOT t.live ORDER BY t.org_id, t.endpoint_id, t.id LIMIT 1)) AS org_id
   WHERE NOT EXISTS (SELECT FROM redrive.installation i WHERE i.singleton AND i.paused_at IS NOT NULL)
  UNION ALL
  SELECT (SELECT t.org_id FROM redrive.task t
           WHERE t.open AND NOT t.live AND t.org_id > orgs.org_id ORDER BY t.org_id, t.endpoint_id, t.id LIMIT 1)
    FROM orgs WHERE $1::uuid IS NULL AND orgs.org_id IS NOT NULL),
-- Without an endpoint (handlers): the index has them last, so each org's steps end with NULL.
places AS (
  SELECT o.org_id, (
           SELECT t.endpoint_id FROM redrive.task t
            WHERE t.org_id = o.org_id AND t.open AND NOT t.live ORDER BY t.endpoint_id, t.id LIMIT 1) AS endpoint_id
    FROM orgs o JOIN redrive.org g ON g.org_id = o.org_id AND g.paused_at IS NULL
  UNION ALL
  SELECT p.org_id, (
           SELECT t.endpoint_id FROM redrive.task t
            WHERE t.org_id = p.org_id AND t.endpoint_id > p.endpoint_id AND t.open AND NOT t.live
            ORDER BY t.endpoint_id, t.id LIMIT 1)
    FROM places p WHERE p.endpoint_id IS NOT NULL),
free AS MATERIALIZED (
  SELECT p.org_id, p.endpoint_id
    FROM places p LEFT JOIN redrive.endpoint e ON e.org_id = p.org_id AND e.id = p.endpoint_id
   WHERE e.id IS NULL OR e.deleted_at IS NOT NULL OR (e.disabled_at IS NULL AND e.paused_at IS NULL)),
picked AS MATERIALIZED (
  SELECT h.org_id, h.id
    FROM free f CROSS JOIN LATERAL (
      SELECT t.org_id, t.id FROM redrive.task t
       WHERE t.org_id = f.org_id AND t.endpoint_id = f.endpoint_id AND t.open AND NOT t.live
       ORDER BY t.id LIMIT $2 FOR UPDATE SKIP LOCKED) h
  UNION ALL
  SELECT h.org_id, h.id
    FROM free f CROSS JOIN LATERAL (
      SELECT t.org_id, t.id FROM redrive.task t
       WHERE f.endpoint_id IS NULL AND t.org_id = f.org_id AND t.endpoint_id IS NULL AND t.open AND NOT t.live
       ORDER BY t.id LIMIT $2 FOR UPDATE SKIP LOCKED) h
  LIMIT $2),
released AS (
  UPDATE redrive.task t SET state = 'waiting', updated_at = clock.now
    FROM picked, (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) clock
   WHERE t.org_id = picked.org_id AND t.id = picked.id AND t.state = 'held'
  RETURNING 1)
SELECT count(*)::int AS n, CASE WHEN count(*) > 0 THEN pg_notify('redrive_due', '')::text END AS told FROM released;
