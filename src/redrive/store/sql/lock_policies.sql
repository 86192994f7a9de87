-- lock_policies: one change of an org's policies at a time: they touch each other (the default, the bound types). $1 org.
SELECT pg_advisory_xact_lock(1380271956, hashtext($1::uuid::text));
