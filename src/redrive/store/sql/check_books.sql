-- check_books: every event and every task of each org, by where it stands. Counted, not taken from the counters.
WITH stand AS (
  SELECT org_id, event_id, bool_or(open) AS open, bool_or(state = 'dead') AS dead FROM redrive.task GROUP BY org_id, event_id),
events AS (
  SELECT e.org_id, count(*) AS events,
         count(*) FILTER (WHERE s.event_id IS NULL AND e.acked_at IS NULL) AS received,
         count(*) FILTER (WHERE s.open) AS queued,
         count(*) FILTER (WHERE NOT s.open AND NOT s.dead OR s.event_id IS NULL AND e.acked_at IS NOT NULL) AS delivered,
         count(*) FILTER (WHERE NOT s.open AND s.dead) AS failed
    FROM redrive.event e LEFT JOIN stand s ON s.org_id = e.org_id AND s.event_id = e.id GROUP BY e.org_id),
tasks AS (
  SELECT t.org_id, count(*) AS tasks,
         count(*) FILTER (WHERE t.state = 'waiting') AS waiting,
         count(*) FILTER (WHERE t.state = 'leased') AS leased,
         count(*) FILTER (WHERE t.state = 'held') AS held,
         count(*) FILTER (WHERE t.state = 'succeeded') AS succeeded,
         count(*) FILTER (WHERE t.state = 'dead') AS dead,
         count(*) FILTER (WHERE t.state = 'dead' AND d.state = 'open') AS dead_open,
         count(*) FILTER (WHERE t.state = 'dead' AND d.state = 'resolved') AS dead_resolved,
         count(*) FILTER (WHERE t.state = 'dead' AND d.state = 'ignored') AS dead_ignored,
         count(*) FILTER (WHERE t.state = 'dead' AND d.state = 'deleted') AS dead_deleted,
         count(*) FILTER (WHERE t.state = 'dead' AND d.state = 'replaying') AS dead_parked,
         count(*) FILTER (WHERE d.state = 'replaying') AS replaying
    FROM redrive.task t
    LEFT JOIN redrive.dead_letter d ON d.org_id = t.org_id AND d.task_id = t.id
   GROUP BY t.org_id)
SELECT coalesce(o.name, org_id::text) AS org, e.events, e.received, e.queued, e.delivered, e.failed, t.tasks, t.waiting,
       t.leased, t.held, t.succeeded, t.dead, t.dead_open, t.dead_resolved, t.dead_ignored, t.dead_deleted, t.dead_parked, t.replaying
  FROM redrive.org o
  FULL JOIN events e USING (org_id)
  FULL JOIN tasks t USING (org_id)
 ORDER BY 1;
