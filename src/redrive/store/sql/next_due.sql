-- next_due: when the first task of these queues falls due, and what time the database has. $1 now, $2 queues.
-- What waits for a person (due at infinity) does not fall due.
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now,
       (SELECT min(d.due_at) FROM unnest($2::text[]) AS q(queue)
         CROSS JOIN LATERAL (
           SELECT t.due_at FROM redrive.task t
            WHERE t.queue = q.queue AND t.live
              AND t.due_at > coalesce($1::timestamptz, clock_timestamp()) AND t.due_at < 'infinity'
            ORDER BY t.due_at, t.id LIMIT 1) d) AS due_at;
