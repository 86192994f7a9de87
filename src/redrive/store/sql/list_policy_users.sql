-- list_policy_users: the first endpoints that name a policy, and how many there are. $1 org, $2 policy, $3 limit.
SELECT id, name, count(*) OVER () AS n
  FROM redrive.endpoint WHERE org_id = $1 AND policy = $2 AND deleted_at IS NULL ORDER BY name LIMIT $3;
