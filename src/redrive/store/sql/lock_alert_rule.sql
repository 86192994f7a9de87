-- lock_alert_rule: as the org has it, until the end of the transaction. $1 org, $2 rule.
SELECT r.spec FROM redrive.alert_rule r WHERE r.org_id = $1 AND r.rule = $2 FOR UPDATE;
