-- set_task_policy: a task goes on under another policy. Its next retry stays where it is. $1 org, $2 task, $3 policy.
UPDATE redrive.task SET policy_id = $3 WHERE org_id = $1 AND id = $2;
