-- lock_workflows: one change of an org's definitions at a time: versions are numbered without a gap. $1 org.
SELECT pg_advisory_xact_lock(1380271958, hashtext($1::uuid::text));
