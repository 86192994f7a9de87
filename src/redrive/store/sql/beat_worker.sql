-- beat_worker: a worker is there. $1 now, $2 worker, $3 host, $4 process, $5 version, $6 queues, $7 concurrency.
WITH clock AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
INSERT INTO redrive.worker AS w (id, started_at, seen_at, host, pid, version, queues, concurrency)
SELECT $2, clock.now, clock.now, $3, $4, $5, $6, $7 FROM clock
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at;
