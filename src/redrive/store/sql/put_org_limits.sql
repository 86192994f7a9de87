-- put_org_limits
INSERT INTO redrive.org_limits (org_id, spec) VALUES ($1, $2::jsonb)
ON CONFLICT (org_id) DO UPDATE SET spec = excluded.spec, updated_at = clock_timestamp();
