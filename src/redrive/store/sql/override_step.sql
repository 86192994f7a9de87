-- override_step: what a person replays a step under. $1 org, $2 run, $3 index, $4 the policy (JSON; NULL: its own), $5 whether its input
-- was edited: what kept it from being tried was the old one's fault, unless it is a call whose URL could not be made either.
UPDATE redrive.step s SET retry_policy_override = coalesce($4, s.retry_policy_override),
       problem = CASE WHEN $5::bool AND (s.url IS NOT NULL OR t.endpoint_id IS NOT NULL OR t.queue <> 'step.http') THEN NULL ELSE s.problem END
  FROM redrive.task t
 WHERE s.org_id = $1 AND s.run_id = $2 AND s.index = $3 AND t.org_id = s.org_id AND t.id = s.task_id;
