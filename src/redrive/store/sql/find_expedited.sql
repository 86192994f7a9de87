-- find_expedited: where a person asked for a try now, and nobody has begun it: streams, the due time, how many. $1 now (NULL: the
-- database's clock), $2 queues, $3 at most. There are few at any time: the index has nothing else.
SELECT t.queue, t.org_id, coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) AS place, t.attempts > 0 AS is_retry,
       t.due_at, count(*)::int AS n
  FROM redrive.task t
 WHERE t.expedited AND t.live AND t.behind IS NULL AND t.state = 'waiting' AND t.queue = ANY ($2::text[])
   AND t.due_at <= coalesce($1::timestamptz, clock_timestamp())
 GROUP BY 1, 2, 3, 4, 5 ORDER BY t.due_at LIMIT $3;
