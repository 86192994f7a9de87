-- count_active_operations: those of an org that still have steps to take. $1 org.
SELECT count(*) AS n FROM redrive.operation o WHERE o.org_id = $1 AND o.active;
