-- find_member: a member of an org by their e-mail. $1 org, $2 e-mail, in lower case.
SELECT u.id FROM redrive.user_account u JOIN redrive.membership m ON m.org_id = $1 AND m.user_id = u.id WHERE u.email = $2;
