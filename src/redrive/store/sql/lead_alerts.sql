-- lead_alerts: whether this transaction alone changes incidents. A round that takes too long may meet the next one.
SELECT pg_try_advisory_xact_lock(1380271957, 41) AS ours;
