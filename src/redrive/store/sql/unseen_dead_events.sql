-- unseen_dead_events: those of these events whose dead letters nobody is to deal with any more: closed, redriven with success, or removed.
-- $1 org, $2 events. Each is looked up by itself: most letters are open, and no list of those should be read.
SELECT r.id
  FROM unnest($2::uuid[]) AS r(id)
  LEFT JOIN LATERAL (SELECT t.id FROM redrive.task t WHERE t.org_id = $1 AND t.event_id = r.id LIMIT 1) t ON true
  LEFT JOIN LATERAL (SELECT d.state FROM redrive.dead_letter d WHERE d.org_id = $1 AND d.task_id = t.id LIMIT 1) d ON true
 WHERE coalesce(d.state, 'deleted') NOT IN ('open', 'replaying');
