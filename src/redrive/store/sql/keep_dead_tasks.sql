-- keep_dead_tasks: tasks of events that were stored just now, under a lease, to be settled in the same transaction. Their tries were made
-- elsewhere. Nothing failed in the future, and nothing first after it failed last.
-- $1 org, $2 now, $3 who, $4 queue, $5 kind, then an array each.
INSERT INTO redrive.task (org_id, id, event_id, policy_id, kind, queue, state, event_type, external_system, due_at, received_at,
                          begun_at, updated_at, leased_at, lease_ends_at, worker_id, fence, attempts, first_failed_at)
SELECT $1::uuid, r.id, r.event_id, p.id, $5::text, $4::text, 'leased', r.type, r.external, $2::timestamptz, $2, $2, $2, $2,
       $2 + interval '1 minute', $3::uuid, 1, r.retries, least(r.first_failed_at, r.failed_at, $2)
  FROM (SELECT coalesce(
          (SELECT p.id FROM redrive.policy p WHERE p.org_id = $1 AND p.name = 'transformer' AND p.retired_at IS NULL),
          (SELECT p.id FROM redrive.policy p WHERE p.org_id = $1 AND p.is_default AND p.retired_at IS NULL),
          (SELECT p.id FROM redrive.policy p WHERE p.org_id = $1 AND p.name = 'integration' AND p.retired_at IS NULL)) AS id) p,
       unnest($6::uuid[], $7::uuid[], $8::text[], $9::text[], $10::int[], $11::timestamptz[], $12::timestamptz[])
         AS r(id, event_id, type, external, retries, first_failed_at, failed_at)
RETURNING id, policy_id;
