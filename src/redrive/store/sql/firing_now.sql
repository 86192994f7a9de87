-- firing_now: incidents of an org that are not over, by rule. $1 org. It reads those and no others.
SELECT a.rule, a.severity, count(*)::int AS n FROM redrive.alert a
 WHERE a.org_id = $1 AND a.over_at IS NULL GROUP BY a.rule, a.severity ORDER BY a.severity, a.rule;
