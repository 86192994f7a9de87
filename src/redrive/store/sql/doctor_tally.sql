-- doctor_tally: for how long what happened has waited to be rolled up: by the first row of the tally. No row: nothing waits. $1 now (NULL: the database's clock).
SELECT extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - t.minute)::float8 AS since_s FROM redrive.tally t ORDER BY t.seq LIMIT 1;
