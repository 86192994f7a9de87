-- lease_task: one waiting task, to write down a try of it that was made elsewhere; settled in the same transaction.
-- $1 org, $2 task, $3 now, $4 who. The columns are those of claim. No index knows of what changes here.
WITH taken AS (
  UPDATE redrive.task t SET
         state = 'leased', fence = t.fence + 1, worker_id = $4::uuid, expedited = false,
         leased_at = c.now, lease_ends_at = c.now + interval '1 minute', updated_at = c.now
    FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) c
   WHERE t.org_id = $1 AND t.id = $2 AND t.state = 'waiting'
  RETURNING t.*, c.now)
SELECT t.org_id, t.id, t.event_id, t.endpoint_id, t.policy_id, t.kind, t.queue, t.event_type, t.fence, t.attempts,
       t.generation, t.begun_at, p.timeout_s, false AS lost, t.now, e.correlation_id, e.body, e.content_type, e.submitted_by
  FROM taken t
  JOIN redrive.event e ON e.org_id = t.org_id AND e.id = t.event_id
  JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id;
