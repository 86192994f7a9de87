-- lock_task: hold a task still while a person's action is judged. Its lease, if any, is not touched.
SELECT t.*, p.spec FROM redrive.task t JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
 WHERE t.org_id = $1 AND t.id = $2 FOR UPDATE OF t;
