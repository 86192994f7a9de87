-- The audit is read by age, by who did it, by what was done. (By what it was done to: audit_of_subject.)
CREATE INDEX audit_by_age ON redrive.audit (org_id, at, id);
CREATE INDEX audit_by_actor ON redrive.audit (org_id, actor, at, id);
CREATE INDEX audit_by_action ON redrive.audit (org_id, action, at, id);
