-- alert_orgs: a page of orgs, with what they have set. $1 behind this one, $2 limit.
SELECT o.org_id, o.name,
       (SELECT jsonb_object_agg(r.rule, r.spec) FROM redrive.alert_rule r WHERE r.org_id = o.org_id) AS specs
  FROM redrive.org o WHERE o.org_id > $1 ORDER BY o.org_id LIMIT $2;
