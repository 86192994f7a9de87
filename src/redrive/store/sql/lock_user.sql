-- lock_user: a member of the org, for a change of the account or of the membership.
SELECT u.id, u.email, u.name, u.is_owner, u.disabled_at, u.last_login_at, m.role, m.suspended_at, m.created_at
  FROM redrive.membership m JOIN redrive.user_account u ON u.id = m.user_id
 WHERE m.org_id = $1 AND m.user_id = $2 FOR NO KEY UPDATE;
