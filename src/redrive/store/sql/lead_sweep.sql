-- lead_sweep: be the one janitor, until this transaction ends. (The numbers below 64 beside it are shards of counters.)
SELECT pg_try_advisory_xact_lock(1380271954, 1000) AS ours;
