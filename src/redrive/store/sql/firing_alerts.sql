-- firing_alerts: incidents of these orgs that are not over. $1 orgs.
SELECT a.org_id, a.id, a.rule, a.subject_kind, a.subject_id, a.subject_name, a.opened_at, a.saw
  FROM redrive.alert a WHERE a.org_id = ANY($1::uuid[]) AND a.over_at IS NULL;
