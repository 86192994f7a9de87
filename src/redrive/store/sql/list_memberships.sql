-- list_memberships: the orgs of a user, oldest membership first; suspended ones too.
SELECT m.org_id, o.name, m.role, m.suspended_at FROM redrive.membership m JOIN redrive.org o ON o.org_id = m.org_id
 WHERE m.user_id = $1 ORDER BY m.created_at, m.org_id LIMIT $2;
