-- create_user: nothing comes back where the e-mail has an account already.
INSERT INTO redrive.user_account (id, email, name, password_hash) VALUES ($1, $2, $3, $4)
ON CONFLICT (email) DO NOTHING RETURNING id;
