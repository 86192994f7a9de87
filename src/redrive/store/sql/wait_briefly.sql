-- wait_briefly: let no statement of this transaction wait for a lock for longer than $1 seconds.
SELECT set_config('lock_timeout', round($1::float8 * 1000)::text || 'ms', true);
