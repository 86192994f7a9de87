-- oldest_due: since when the task is due that waits longest, and what time it is. $1 org, $2 now, $3 how many to look at.
-- Retries by their due time, first tries by their age (they are due when they come in). Both lists hold leased and held tasks, and those that wait
-- behind others of their lane, too: those that stand before the first one that waits for itself are stepped over, up to the bound.
WITH clock AS MATERIALIZED (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now)
SELECT clock.now, least(
         (SELECT r.due_at FROM (
            SELECT t.due_at, t.state, t.behind FROM redrive.task t
             WHERE t.org_id = $1 AND t.open AND t.attempts > 0 ORDER BY t.due_at, t.id LIMIT $3) r
           WHERE r.state = 'waiting' AND r.behind IS NULL AND r.due_at <= clock.now ORDER BY r.due_at LIMIT 1),
         (SELECT f.due_at FROM (
            SELECT t.due_at, t.state, t.attempts, t.behind FROM redrive.task t
             WHERE t.org_id = $1 AND t.open ORDER BY t.received_at, t.event_id LIMIT $3) f
           WHERE f.state = 'waiting' AND f.behind IS NULL AND f.attempts = 0 AND f.due_at <= clock.now ORDER BY f.due_at LIMIT 1)) AS due_at
  FROM clock;
