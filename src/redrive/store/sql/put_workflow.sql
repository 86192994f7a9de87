-- put_workflow: a new version, which is in force from now on; the one before was retired. $1 org, $2 name, $3 id, $4 steps, $5 spec,
-- $6 sealed headers, $7 shown, $8 bindings, $9 who, $10 now (NULL: the database's clock).
INSERT INTO redrive.workflow (org_id, id, name, version, steps, spec, headers_sealed, shown, bindings, created_at, created_by)
SELECT $1, $3, $2, 1 + coalesce((SELECT max(w.version) FROM redrive.workflow w WHERE w.org_id = $1 AND w.name = $2), 0), $4, $5, $6, $7, $8,
       coalesce($10::timestamptz, clock_timestamp()), $9;
