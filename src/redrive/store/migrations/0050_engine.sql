-- An open breaker lets a trickle through instead of one probe at a time: there is nothing to wait for and nothing to count.
ALTER TABLE redrive.endpoint_state DROP CONSTRAINT endpoint_state_breaker_check;
UPDATE redrive.endpoint_state SET breaker = 'open' WHERE breaker = 'probing';
ALTER TABLE redrive.endpoint_state
  DROP COLUMN probe_at, DROP COLUMN opens,
  ADD CONSTRAINT endpoint_state_breaker_check CHECK (breaker IN ('closed', 'open', 'ramping'));
