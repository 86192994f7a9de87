-- count_endpoints: an org has few enough to count.
SELECT count(*) AS n FROM redrive.endpoint WHERE org_id = $1 AND deleted_at IS NULL;
