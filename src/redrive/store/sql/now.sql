-- now: what time it is; $1 where a test says so.
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now;
