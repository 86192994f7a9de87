-- find_user: an account by its e-mail (in lower case), whatever org it is in.
SELECT id, email, name, password_hash, is_owner, disabled_at FROM redrive.user_account WHERE email = $1;
