-- orgs_to_sweep: orgs that no janitor has begun with for a while, longest ago first. `until`: what was received later cannot go
-- under any policy that a task may still have, retired ones included; `aged_until`: nor can it have expired. $1 now, $2 seconds.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
terms AS (
  SELECT p.org_id,
         min(least((p.spec -> 'retention' ->> 'delivered_s')::float8, (p.spec -> 'retention' ->> 'failed_s')::float8,
                   (p.spec -> 'retention' ->> 'dead_s')::float8, (p.spec -> 'retention' ->> 'received_s')::float8)) AS shortest_s,
         min((p.spec ->> 'max_age_s')::float8) AS shortest_age_s
    FROM redrive.policy p GROUP BY p.org_id)
SELECT o.org_id, o.name, clock.now, clock.now - make_interval(secs => t.shortest_s) AS until,
       clock.now - make_interval(secs => t.shortest_age_s) AS aged_until,
       k.acked_s, k.received_s
  FROM clock, redrive.org o LEFT JOIN terms t ON t.org_id = o.org_id
  -- Of the inbox: what a task would get that nothing else names a policy for.
  LEFT JOIN LATERAL (
    SELECT (p.spec -> 'retention' ->> 'delivered_s')::float8 AS acked_s, (p.spec -> 'retention' ->> 'received_s')::float8 AS received_s
      FROM redrive.policy p
     WHERE p.org_id = o.org_id AND p.retired_at IS NULL
       AND (p.is_default OR p.name IN ('integration', (SELECT i.default_policy FROM redrive.installation i WHERE i.singleton)))
     ORDER BY p.is_default DESC, p.name = 'integration' LIMIT 1) k ON true
 WHERE o.swept_at IS NULL OR o.swept_at <= clock.now - make_interval(secs => $2::float8)
 ORDER BY o.swept_at NULLS FIRST, o.org_id;
