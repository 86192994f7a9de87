-- keep_effect: of who was first. $1 org, $2 key, $3 run, $4 result, $5 now (NULL: the database's clock).
INSERT INTO redrive.effect (org_id, key, run_id, result, at) VALUES ($1, $2, $3, $4, coalesce($5::timestamptz, clock_timestamp()))
ON CONFLICT (org_id, key) DO NOTHING RETURNING key;
