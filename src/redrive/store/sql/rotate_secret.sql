-- rotate_secret: $1 org, $2 endpoint, $3 the new secret and the one before it, sealed, $4 seconds that both sign (NULL: only
-- the new one is left), $5 now.
UPDATE redrive.endpoint SET secret_sealed = $3, updated_at = coalesce($5::timestamptz, clock_timestamp()),
       previous_secret_until = coalesce($5::timestamptz, clock_timestamp()) + make_interval(secs => $4::float8)
 WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING *;
