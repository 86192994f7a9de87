-- lead_sweep: be the one janitor, until this transaction ends. (The numbers below 64 beside it are shards of counters.) The server ends a
-- transaction that says nothing for so long: its process is stopped or its machine gone. An archive may take a while to write.
SELECT pg_try_advisory_xact_lock(1380271954, 1000) AS ours, set_config('idle_in_transaction_session_timeout', '5min', true);
