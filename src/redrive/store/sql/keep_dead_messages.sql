-- keep_dead_messages: what these letters were in their broker; and when they died there, which is before they came here.
-- $1 org, $2 now, then an array each.
WITH given AS MATERIALIZED (
  SELECT r.*
    FROM unnest($3::uuid[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
                $12::text[], $13::text[], $14::text[], $15::int[], $16::uuid[], $17::int[])
           AS r(task_id, failed_at, source, queue, exchange, routing_key, origin, message_id, service, properties, deaths, details,
                retries, redriven_from, replays)),
earlier AS MATERIALIZED (SELECT g.task_id, g.failed_at FROM given g WHERE g.failed_at < $2::timestamptz),
letters AS (
  UPDATE redrive.dead_letter d SET failed_at = e.failed_at FROM earlier e WHERE d.org_id = $1::uuid AND d.task_id = e.task_id),
tries AS (
  UPDATE redrive.attempt a SET started_at = e.failed_at, ended_at = e.failed_at
    FROM earlier e WHERE a.org_id = $1 AND a.task_id = e.task_id AND a.fence = 1),
tasks AS (
  UPDATE redrive.task t SET last_failed_at = e.failed_at FROM earlier e WHERE t.org_id = $1 AND t.id = e.task_id)
INSERT INTO redrive.broker_message (org_id, task_id, source, queue, exchange, routing_key, origin, message_id, service, properties,
                                    deaths, details, retries, redriven_from, replays, collected_at)
SELECT $1, g.task_id, g.source, g.queue, g.exchange, g.routing_key, g.origin, g.message_id, g.service, g.properties, g.deaths,
       g.details, g.retries, g.redriven_from, g.replays, $2
  FROM given g;
