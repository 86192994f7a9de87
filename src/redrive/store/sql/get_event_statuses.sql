-- get_event_statuses: where events stand; never their payloads. $1 org, $2 ids.
-- Of several tasks the one that was retried most speaks for the event; the next retry is the soonest of all.
-- retry_attempts: retries granted so far, at most the policy's max_retries. A permanent failure grants none.
SELECT e.id, e.status, e.failed_at, t.last_retry_at, t.next_retry_at, coalesce(t.retry_attempts, 0) AS retry_attempts
  FROM unnest($2::uuid[]) AS k(id)
  JOIN redrive.event_entry e ON e.org_id = $1 AND e.id = k.id
  LEFT JOIN LATERAL (
    SELECT max(t.last_failed_at) AS last_retry_at,
           min(t.due_at) FILTER (WHERE t.state IN ('waiting', 'held') AND t.attempts > 0 AND t.due_at < 'infinity') AS next_retry_at,
           max(least(CASE WHEN t.state = 'succeeded' OR t.reason = 'permanent' THEN t.attempts - 1 ELSE t.attempts END,
                     coalesce((p.spec ->> 'max_retries')::int, t.attempts))) AS retry_attempts
      FROM redrive.task t JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
     WHERE t.org_id = e.org_id AND t.event_id = e.id) t ON true;
