-- alerts_everywhere: how many alerts of all orgs fire, by their rule. Reads those that fire, and no other (alert_firing).
SELECT a.rule, count(*)::bigint AS n FROM redrive.alert a WHERE a.over_at IS NULL GROUP BY a.rule;
