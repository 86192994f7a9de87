-- When the rate of an endpoint allows the next try, so that a worker which takes it over does not begin with a try of its own.

ALTER TABLE redrive.endpoint_state ADD COLUMN paced_until timestamptz;
