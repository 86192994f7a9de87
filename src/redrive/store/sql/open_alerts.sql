-- open_alerts: begin incidents; answers those that were not there. $1 now, then by incident: $2 org, $3 id, $4 rule, $5 severity, $6 kind,
-- $7 id and $8 name of its subject, $9 text, $10 what was seen, $11 the notice that tells of it.
INSERT INTO redrive.alert (org_id, id, rule, severity, subject_kind, subject_id, subject_name, opened_at, text, saw, notice_id)
SELECT n.org_id, n.id, n.rule, n.severity, n.kind, n.subject_id, n.name, coalesce($1::timestamptz, clock_timestamp()), n.text,
       n.saw::jsonb, n.notice_id
  FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::text[], $9::text[], $10::text[], $11::uuid[])
         AS n(org_id, id, rule, severity, kind, subject_id, name, text, saw, notice_id)
ON CONFLICT DO NOTHING
RETURNING id;
