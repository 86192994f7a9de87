-- Operations that have not ended, newest first, however many have. Written when one begins and when it ends, not in between.
CREATE INDEX operation_unfinished ON redrive.operation (org_id, id) WHERE finished_at IS NULL;
