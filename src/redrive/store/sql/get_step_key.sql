-- get_step_key: the idempotency key of a step that the run came to before. $1 org, $2 run, $3 index.
SELECT idempotency_key FROM redrive.step WHERE org_id = $1 AND run_id = $2 AND index = $3;
