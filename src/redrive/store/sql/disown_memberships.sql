-- disown_memberships: who is OWNER no longer is that nowhere. $1 user, $2 the role instead.
UPDATE redrive.membership SET role = $2 WHERE user_id = $1 AND role = 'OWNER';
