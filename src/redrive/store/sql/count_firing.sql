-- count_firing: incidents of an org that are not over, by severity. $1 org.
SELECT a.severity, count(*)::int AS n FROM redrive.alert a WHERE a.org_id = $1 AND a.over_at IS NULL GROUP BY a.severity;
