-- count_orgs: there are few enough to count. $1 only these, or NULL for all.
SELECT count(*) AS n FROM redrive.org WHERE $1::uuid[] IS NULL OR org_id = ANY ($1);
