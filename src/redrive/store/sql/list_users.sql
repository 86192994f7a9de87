-- list_users: the members of an org, oldest account first. $1 org, $2 after this id, $3 limit.
SELECT u.id, u.email, u.name, u.is_owner, u.disabled_at, u.last_login_at, m.role, m.suspended_at, m.created_at
  FROM redrive.membership m JOIN redrive.user_account u ON u.id = m.user_id
 WHERE m.org_id = $1 AND ($2::uuid IS NULL OR m.user_id > $2)
 ORDER BY m.user_id LIMIT $3;
