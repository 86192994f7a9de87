-- worst_endpoints: where most of the newest failures are. $1 org, $2 now, $3 how far back, $4 how many to look at of each
-- kind, $5 limit. Open dead letters by their age, and what the retry queue tries next: two indexes, each read from its end.
-- The state hides in a sub-select, as for list_dead_letters; so does the time, else it would be asked for each letter, and all of
-- them be read where few are of that time.
WITH clock AS MATERIALIZED (SELECT coalesce($2::timestamptz, clock_timestamp()) - $3::interval AS since),
failures AS MATERIALIZED (
  (SELECT d.endpoint_id FROM redrive.dead_letter d
    WHERE d.org_id = $1 AND d.state = (SELECT 'open'::text)
      AND d.created_at >= (SELECT since FROM clock)
    ORDER BY d.created_at DESC LIMIT $4)
  UNION ALL
  (SELECT t.endpoint_id FROM redrive.task t
    WHERE t.org_id = $1 AND t.open AND t.attempts > 0 ORDER BY t.due_at, t.id LIMIT $4))
SELECT e.id, e.name, f.failures
  FROM (SELECT endpoint_id, count(*)::int AS failures FROM failures WHERE endpoint_id IS NOT NULL GROUP BY endpoint_id) f
  JOIN redrive.endpoint e ON e.org_id = $1 AND e.id = f.endpoint_id AND e.deleted_at IS NULL
 ORDER BY f.failures DESC, e.name, e.id LIMIT $5;
