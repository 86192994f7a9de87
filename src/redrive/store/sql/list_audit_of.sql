-- list_audit_of: what was done to these things, in the order of time. $1 org, $2 subjects.
SELECT a.* FROM redrive.audit a
 WHERE a.org_id = $1 AND a.subject_id = ANY ($2::uuid[])
 ORDER BY a.at, a.id LIMIT 1000;
