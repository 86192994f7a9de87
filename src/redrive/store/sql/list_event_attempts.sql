-- list_event_attempts: every try of an event's tasks; a lease that is open is a try without an end. $1 org, $2 event.
SELECT a.task_id, t.endpoint_id, t.kind, t.event_type, t.event_id, a.fence, a.generation, a.number, a.result, a.worker_id, a.started_at,
       a.ended_at, a.status_code, a.category, a.possible_duplicate, a.truncated, a.error_message, a.error_stack, a.url,
       a.request_headers, a.response_headers, a.response_body, a.late_at, a.late_result
  FROM redrive.task t JOIN redrive.attempt a ON a.org_id = t.org_id AND a.task_id = t.id
 WHERE t.org_id = $1 AND t.event_id = $2
UNION ALL
SELECT t.id, t.endpoint_id, t.kind, t.event_type, t.event_id, t.fence, t.generation, t.attempts + 1, 'open', t.worker_id, t.leased_at,
       NULL, NULL, NULL, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM redrive.task t
 WHERE t.org_id = $1 AND t.event_id = $2 AND t.state = 'leased'
 ORDER BY started_at, task_id, fence LIMIT 1000;
