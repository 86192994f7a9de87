-- record_audit: who did what to which thing, why, and from where.
INSERT INTO redrive.audit (org_id, id, at, actor, action, subject_kind, subject_id, because, correlation_id, before, after,
                           source)
VALUES ($1, redrive.uuid7(), clock_timestamp(), $2, $3, $4, $5, $6, $7, $8::jsonb, $9::jsonb, $10);
