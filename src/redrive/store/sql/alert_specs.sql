-- alert_specs: what an org has set of its rules. $1 org.
SELECT r.rule, r.spec, r.updated_at FROM redrive.alert_rule r WHERE r.org_id = $1;
