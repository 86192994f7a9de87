-- create_org: nothing comes back where the name is taken.
INSERT INTO redrive.org (org_id, name) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING org_id;
