-- record_audits: one action on many things, a row for each. $1 org, $2 who, $3 action, $4 kind, $5 things, $6 why,
-- $7 correlation id, $8 states before, $9 operation, $10 from where.
INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, because, correlation_id, before, after,
                           source)
SELECT $1, redrive.uuid7(), clock_timestamp(), $2, $3, $4, g.id, $6, $7,
       CASE WHEN g.state IS NOT NULL THEN jsonb_build_object('state', g.state) END,
       jsonb_build_object('operation_id', $9::uuid), $10
  FROM unnest($5::uuid[], $8::text[]) AS g(id, state);
