-- lock_endpoint: for a change. Whoever changes it meanwhile (people, or the engine that disables it) waits; claims don't.
SELECT * FROM redrive.endpoint WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE;
