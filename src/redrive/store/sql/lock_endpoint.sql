-- lock_endpoint: for a change. Whoever changes it meanwhile (people, or the engine that disables it) waits; claims don't.
WITH gate AS MATERIALIZED (SELECT redrive.close_gate($2))
SELECT e.* FROM gate CROSS JOIN redrive.endpoint e WHERE e.org_id = $1 AND e.id = $2 AND e.deleted_at IS NULL FOR UPDATE OF e;
