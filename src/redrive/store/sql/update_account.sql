-- update_account: name, password, ownership, disabled; NULL leaves a thing as it is. $2 name, $3 hash, $4 owner, $5 disabled.
UPDATE redrive.user_account
   SET name = coalesce($2, name), password_hash = coalesce($3, password_hash), is_owner = coalesce($4, is_owner),
       disabled_at = CASE WHEN $5::bool IS NULL THEN disabled_at WHEN $5 THEN coalesce(disabled_at, clock_timestamp()) END
 WHERE id = $1;
