-- lead_alerts: whether this transaction alone changes incidents. A round that takes too long may meet the next one. $1 seconds after which
-- the server ends a transaction that says nothing: of a machine that is gone or a process that is stopped, it would not hear for hours, and
-- nobody else would look.
SELECT set_config('idle_in_transaction_session_timeout', round($1::float8 * 1000)::text || 'ms', true),
       pg_try_advisory_xact_lock(1380271957, 41) AS ours;
