-- lead_roll: whether the tally is ours to roll, until the transaction ends. A lock of the transaction: poolers keep no other. The server
-- ends a transaction that says nothing for so long (its process is stopped, its machine gone): nobody else could roll meanwhile.
SELECT pg_try_advisory_xact_lock(1380271971, 0) AS ours, set_config('idle_in_transaction_session_timeout', '30s', true);
