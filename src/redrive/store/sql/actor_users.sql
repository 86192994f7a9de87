-- actor_users: who acted in an org, members or not: an OWNER acts without a membership, and whoever has left did what
-- they did. The e-mail is the org's to know for its members only. $1 org, $2 ids of accounts.
SELECT u.id, u.name, CASE WHEN m.user_id IS NOT NULL THEN u.email END AS email
  FROM redrive.user_account u LEFT JOIN redrive.membership m ON m.org_id = $1 AND m.user_id = u.id
 WHERE u.id = ANY ($2::uuid[]);
