-- list_queues: the queues of an org as collectors last saw them, and how many open dead letters are of each, counted to $2. $1 org.
-- The type is asked for as a range, in an order that one index alone has: else a planner that knows nothing yet takes any other.
SELECT q.queue, q.is_source, q.problem, q.messages, q.consumers, q.collected, q.duplicates, q.seen_at, q.collected_at, l.n AS open_letters
  FROM redrive.broker_queue q
 CROSS JOIN LATERAL (
   SELECT count(*) AS n FROM (
     SELECT FROM redrive.dead_letter d
      WHERE d.org_id = $1 AND d.state = (SELECT 'open'::text)
        AND d.event_type >= left(q.queue, 200) AND d.event_type <= left(q.queue, 200)
      ORDER BY d.event_type, d.created_at LIMIT $2::int) s) l
 WHERE q.org_id = $1
 ORDER BY q.is_source DESC, q.queue;
