-- get_org: one with its limits, what it uses, and the policy of tasks that nothing else names one for.
SELECT o.org_id, o.name, o.created_at, o.limits, o.stored_bytes, o.endpoints,
       coalesce((SELECT p.name FROM redrive.policy p WHERE p.org_id = o.org_id AND p.is_default AND p.retired_at IS NULL),
                (SELECT p.name FROM redrive.policy p JOIN redrive.installation i ON i.singleton AND i.default_policy = p.name
                  WHERE p.org_id = o.org_id AND p.retired_at IS NULL),
                'integration') AS default_policy
  FROM redrive.org_entry o WHERE o.org_id = $1;
