-- tell_alerts: notices of incidents, for the herald. $1 now, then by notice: $2 org, $3 id, $4 kind, $5 severity, $6 the incident (NULL: many),
-- $7 text, $8 facts. Not by redrive.note: beyond twenty a minute that only counts, and an alert must be told. What bounds them is that an
-- incident is told twice in its life, and that beyond a few those of a rule are told together (core.alerts.messages).
INSERT INTO redrive.notice (org_id, id, at, kind, severity, subject_kind, subject_id, text, facts)
SELECT n.org_id, n.id, coalesce($1::timestamptz, clock_timestamp()), n.kind, n.severity, 'alert', n.subject_id, left(n.text, 1000), n.facts::jsonb
  FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::text[])
         AS n(org_id, id, kind, severity, subject_id, text, facts);
