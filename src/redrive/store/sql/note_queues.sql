-- note_queues: queues as a collector sees them. In the order given, that of their names: two collectors never wait in a ring. Where an org
-- has as many as are kept, no further one is. $1 org, $2 now, $3 most, then an array each.
WITH clock AS MATERIALIZED (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now),
kept AS MATERIALIZED (SELECT q.queue FROM redrive.broker_queue q WHERE q.org_id = $1::uuid),
given AS MATERIALIZED (
  SELECT r.*, count(*) FILTER (WHERE r.queue <> ALL (ARRAY(SELECT queue FROM kept))) OVER (ORDER BY r.place) AS new,
         r.queue <> ALL (ARRAY(SELECT queue FROM kept)) AS is_new
    FROM unnest($4::text[], $5::bool[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[]) WITH ORDINALITY
           AS r(queue, is_source, problem, messages, consumers, collected, duplicates, place))
INSERT INTO redrive.broker_queue AS q (org_id, queue, is_source, problem, messages, consumers, collected, duplicates, seen_at, collected_at)
SELECT $1, g.queue, g.is_source, g.problem, g.messages, g.consumers, g.collected, g.duplicates, clock.now,
       CASE WHEN g.collected > 0 THEN clock.now END
  FROM given g, clock
 WHERE NOT g.is_new OR (SELECT count(*) FROM kept) + g.new <= $3::int
 ORDER BY g.place
ON CONFLICT (org_id, queue) DO UPDATE SET
       is_source = excluded.is_source, problem = excluded.problem, messages = excluded.messages, consumers = excluded.consumers,
       collected = q.collected + excluded.collected, duplicates = q.duplicates + excluded.duplicates, seen_at = excluded.seen_at,
       collected_at = coalesce(excluded.collected_at, q.collected_at);
