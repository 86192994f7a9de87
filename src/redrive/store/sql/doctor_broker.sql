-- doctor_broker: queues of the broker that a collector cannot empty.
SELECT q.queue, q.problem FROM redrive.broker_queue q WHERE q.problem IS NOT NULL ORDER BY q.queue LIMIT 20;
