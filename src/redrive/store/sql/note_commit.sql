-- note_commit: something to commit that no table holds: the commit waits for the disk, and for standbys, as any other.
SELECT pg_logical_emit_message(true, 'redrive', '') IS NOT NULL AS done;
