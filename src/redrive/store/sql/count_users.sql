-- count_users: an org has few enough to count.
SELECT count(*) AS n FROM redrive.membership WHERE org_id = $1;
