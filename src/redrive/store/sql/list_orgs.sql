-- list_orgs: oldest first, each as by get_org. $1 only these, or NULL for all; $2 after this id; $3 limit.
SELECT o.org_id, o.name, o.created_at, o.limits, o.stored_bytes, o.endpoints,
       coalesce((SELECT p.name FROM redrive.policy p WHERE p.org_id = o.org_id AND p.is_default AND p.retired_at IS NULL),
                (SELECT p.name FROM redrive.policy p JOIN redrive.installation i ON i.singleton AND i.default_policy = p.name
                  WHERE p.org_id = o.org_id AND p.retired_at IS NULL),
                'integration') AS default_policy
  FROM redrive.org_entry o
 WHERE ($1::uuid[] IS NULL OR o.org_id = ANY ($1)) AND ($2::uuid IS NULL OR o.org_id > $2)
 ORDER BY o.org_id LIMIT $3;
