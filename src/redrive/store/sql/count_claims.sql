-- count_claims: idempotency keys that would go. $1 org, $2 now, $3 seconds.
SELECT count(*) AS n FROM redrive.idempotency
 WHERE org_id = $1 AND created_at < $2::timestamptz - make_interval(secs => $3::float8);
