-- put_alert_rule: $1 org, $2 rule, $3 spec, $4 now.
INSERT INTO redrive.alert_rule (org_id, rule, spec, updated_at) VALUES ($1, $2, $3::jsonb, coalesce($4::timestamptz, clock_timestamp()))
ON CONFLICT (org_id, rule) DO UPDATE SET spec = excluded.spec, updated_at = excluded.updated_at;
