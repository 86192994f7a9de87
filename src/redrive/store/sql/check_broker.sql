-- check_broker: a task that goes back to a broker knows where to, and whatever came from one has such a task.
SELECT t.org_id, t.id, 'the task is to go back to its broker, and nothing says where to' AS detail
  FROM redrive.task t
 WHERE t.queue = 'rabbitmq.return'
   AND NOT EXISTS (SELECT FROM redrive.broker_message b WHERE b.org_id = t.org_id AND b.task_id = t.id)
UNION ALL
SELECT b.org_id, b.task_id, format('a message of the queue %s has no task that leads back', quote_literal(b.queue))
  FROM redrive.broker_message b
 WHERE NOT EXISTS (SELECT FROM redrive.task t WHERE t.org_id = b.org_id AND t.id = b.task_id AND t.queue = 'rabbitmq.return')
 LIMIT 11;
