-- find_session: who a session stands for, and what they are in the org they are in. $2 now.
SELECT s.id, s.user_id, s.in_org AS org_id, s.role AS link_role, u.name, u.is_owner, u.disabled_at, m.role, m.suspended_at,
       o.name AS org_name, o.limits, o.stored_bytes
  FROM redrive.session s
  JOIN redrive.org_entry o ON o.org_id = s.in_org
  LEFT JOIN redrive.user_account u ON u.id = s.user_id
  LEFT JOIN redrive.membership m ON m.org_id = s.in_org AND m.user_id = s.user_id
 WHERE s.token_hash = $1 AND s.expires_at > coalesce($2::timestamptz, clock_timestamp());
