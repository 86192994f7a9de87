-- delete_alert_rule: the rule is as it is by default again. $1 org, $2 rule.
DELETE FROM redrive.alert_rule r WHERE r.org_id = $1 AND r.rule = $2 RETURNING r.spec;
