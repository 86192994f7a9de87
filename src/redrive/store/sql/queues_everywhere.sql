-- queues_everywhere: those of all orgs, for metrics; of one name the sums. $1 most.
SELECT q.queue, sum(q.messages)::bigint AS messages, sum(q.consumers)::bigint AS consumers, sum(q.collected)::bigint AS collected,
       sum(q.duplicates)::bigint AS duplicates
  FROM redrive.broker_queue q
 GROUP BY q.queue ORDER BY q.queue LIMIT $1;
