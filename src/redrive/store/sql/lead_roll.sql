-- lead_roll: whether the tally is ours to roll, until the transaction ends. A lock of the transaction: poolers keep no other.
SELECT pg_try_advisory_xact_lock(1380271971, 0) AS ours;
