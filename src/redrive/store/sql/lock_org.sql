-- lock_org: for a change. Events are accepted meanwhile: they take no lock on it.
SELECT org_id, name FROM redrive.org WHERE org_id = $1 FOR NO KEY UPDATE;
