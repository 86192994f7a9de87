-- count_policy_users: how many endpoints name each policy. An org has few enough endpoints to count. $1 org.
SELECT policy, count(*)::int AS n
  FROM redrive.endpoint WHERE org_id = $1 AND policy IS NOT NULL AND deleted_at IS NULL GROUP BY policy;
