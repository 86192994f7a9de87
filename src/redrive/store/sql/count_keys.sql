-- count_keys: an org has few enough to count.
SELECT count(*) AS n FROM redrive.api_key WHERE org_id = $1;
