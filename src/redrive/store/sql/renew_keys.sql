-- renew_keys: another idempotency key for steps of a run, because a person asked for it. $1 org, $2 run, $3 from, $4 to.
UPDATE redrive.step SET renewal = renewal + 1, idempotency_key = concat_ws(':', run_id, index, 'r' || (renewal + 1))
 WHERE org_id = $1 AND run_id = $2 AND index BETWEEN $3 AND $4;
