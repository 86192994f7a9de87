-- update_membership: role, suspended; NULL leaves a thing as it is. $3 role, $4 suspended.
UPDATE redrive.membership
   SET role = coalesce($3, role),
       suspended_at = CASE WHEN $4::bool IS NULL THEN suspended_at WHEN $4 THEN coalesce(suspended_at, clock_timestamp()) END
 WHERE org_id = $1 AND user_id = $2;
