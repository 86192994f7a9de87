-- delete_membership
DELETE FROM redrive.membership WHERE org_id = $1 AND user_id = $2;
