-- begin_sweep: take an org's turn. No row where another janitor took it meanwhile. $1 org, $2 now, $3 seconds.
UPDATE redrive.org SET swept_at = $2
 WHERE org_id = $1 AND (swept_at IS NULL OR swept_at <= $2::timestamptz - make_interval(secs => $3::float8))
RETURNING org_id;
