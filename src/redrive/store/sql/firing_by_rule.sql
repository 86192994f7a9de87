-- firing_by_rule: of all orgs, what is not over. It reads those that fire and no others.
SELECT a.rule, count(*)::int AS n FROM redrive.alert a WHERE a.over_at IS NULL GROUP BY a.rule;
