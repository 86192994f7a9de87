-- is_writable: a round trip that also tells a standby from a server that takes writes.
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AS is_writable;
