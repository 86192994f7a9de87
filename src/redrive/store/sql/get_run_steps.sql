-- get_run_steps: those that a run has come to, with what their tasks say. $1 org, $2 run, $3 inputs and outputs of more bytes than this
-- are left out (NULL: none is).
SELECT s.index, s.name, s.task_id, s.execution, s.idempotency_key, s.output_is_cut, s.done_at,
       s.problem, e.state, e.attempts, e.generation, e.due_at, e.first_failed_at, e.last_failed_at, e.policy, e.policy_spec,
       e.error_message, e.error_stack, e.category, e.correlation_id, t.begun_at, t.leased_at, t.received_at, t.updated_at, t.edit,
       (SELECT count(*) FROM redrive.attempt a
         WHERE a.org_id = t.org_id AND a.task_id = t.id AND a.result <> 'released')::int AS attempts_total,
       d.state AS letter_state, octet_length(coalesce(x.body, b.body)) AS body_bytes, octet_length(s.output) AS output_bytes,
       CASE WHEN octet_length(coalesce(x.body, b.body)) > $3::int THEN NULL ELSE coalesce(x.body, b.body) END AS body,
       CASE WHEN octet_length(s.output) > $3::int THEN NULL ELSE s.output END AS output
  FROM redrive.step s
  LEFT JOIN redrive.task_entry e ON e.org_id = s.org_id AND e.id = s.task_id
  LEFT JOIN redrive.task t ON t.org_id = s.org_id AND t.id = s.task_id
  LEFT JOIN redrive.event b ON b.org_id = t.org_id AND b.id = t.event_id
  LEFT JOIN redrive.edit x ON x.org_id = t.org_id AND x.task_id = t.id AND x.number = t.edit
  LEFT JOIN redrive.dead_letter d ON d.org_id = s.org_id AND d.task_id = s.task_id
 WHERE s.org_id = $1 AND s.run_id = $2
 ORDER BY s.index;
