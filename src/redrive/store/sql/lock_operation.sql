-- lock_operation: hold it still while a person's command is judged; a step under way is waited for. $1 org, $2 id.
SELECT * FROM redrive.operation WHERE org_id = $1 AND id = $2 FOR UPDATE;
