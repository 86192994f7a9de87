-- get_dead_message: what a dead letter was in its broker. Of its JSON as much as is shown. $1 org, $2 task, $3 characters.
SELECT b.source, b.queue, b.exchange, b.routing_key, b.message_id, b.service, b.retries, b.redriven_from, b.replays, b.collected_at,
       left(b.properties, $3::int) AS properties, left(b.deaths, $3) AS deaths, left(b.details, $3) AS details
  FROM redrive.broker_message b WHERE b.org_id = $1 AND b.task_id = $2;
