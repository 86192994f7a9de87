-- count_live_keys: those of an org that let anybody in. $1 org.
SELECT count(*) AS n FROM redrive.api_key
 WHERE org_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());
