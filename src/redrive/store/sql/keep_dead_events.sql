-- keep_dead_events: messages that died in a broker, as events of one task each. Those that are known are left out of the answer.
-- In the order given, which is that of the ids: who hands in the same ones at the same time waits, and is not waited for.
-- $1 org, $2 now, then an array each.
WITH clock AS MATERIALIZED (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now)
INSERT INTO redrive.event (org_id, id, event_type, tasks, external_system, correlation_id, occurred_at, received_at, content_type, body,
                           headers)
SELECT $1::uuid, r.id, r.type, 1, r.external, r.correlation, clock.now, clock.now, r.content_type, r.body, r.headers
  FROM clock, unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::text[])
         AS r(id, type, external, correlation, content_type, body, headers)
ON CONFLICT (org_id, id) DO NOTHING
RETURNING id, received_at;
