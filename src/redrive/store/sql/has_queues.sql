-- has_queues: whether a collector has ever seen a queue for this org. $1 org.
SELECT EXISTS (SELECT FROM redrive.broker_queue q WHERE q.org_id = $1) AS has_queues;
