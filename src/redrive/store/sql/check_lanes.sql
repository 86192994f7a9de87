-- check_lanes: what waits behind others of its lane waits for somebody: the lane has a head, or is halted by a dead letter that is
-- open. A lane to which something was just added gets its head from a worker, which may take as long as the grace.
-- $1 now (NULL: the database's clock), $2 grace in seconds.
SELECT t.org_id, t.id,
       CASE WHEN t.lane IS NULL THEN 'behind others, but in no lane'
            WHEN l.halted_by IS NOT NULL THEN format('its lane is halted by %s, which is no open dead letter', l.halted_by)
            ELSE format('nothing is at the head of its lane %s', t.lane) END AS detail
  FROM redrive.task t
  LEFT JOIN redrive.lane l ON l.org_id = t.org_id AND l.lane = t.lane
 WHERE t.behind AND t.open
   AND t.updated_at < coalesce($1::timestamptz, transaction_timestamp()) - make_interval(secs => $2::float8)
   AND (t.lane IS NULL OR NOT EXISTS (
     SELECT FROM redrive.task h
      WHERE h.org_id = t.org_id AND h.lane = t.lane AND h.lane IS NOT NULL AND h.open AND h.behind IS NULL))
   AND NOT EXISTS (
     SELECT FROM redrive.dead_letter d WHERE d.org_id = l.org_id AND d.task_id = l.halted_by AND d.state = 'open')
 ORDER BY t.place
 LIMIT 11;
