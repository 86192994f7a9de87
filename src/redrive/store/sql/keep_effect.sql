-- keep_effect: of who was first. $1 org, $2 key, $3 result, $4 now (NULL: the database's clock).
INSERT INTO redrive.effect (org_id, key, result, at) VALUES ($1, $2, $3, coalesce($4::timestamptz, clock_timestamp()))
ON CONFLICT (org_id, key) DO NOTHING RETURNING key;
