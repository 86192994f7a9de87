-- create_membership: nothing comes back where there is one already.
INSERT INTO redrive.membership (org_id, user_id, role) VALUES ($1, $2, $3)
ON CONFLICT (org_id, user_id) DO NOTHING RETURNING user_id;
