-- get_alert: $1 org, $2 id.
SELECT a.id, a.rule, a.severity, a.subject_kind, a.subject_id, a.subject_name, a.opened_at, a.over_at, a.text, a.over_text, a.saw
  FROM redrive.alert a WHERE a.org_id = $1 AND a.id = $2;
