-- own_endpoints: have endpoints to oneself, where nobody else has them. What is answered is owned; the rest of the row says what
-- there is to count, and whether somebody else had it before. $1 now (NULL: the database's clock), $2 orgs, $3 endpoints, $4 worker, $5 for how many seconds.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
owned AS (
  INSERT INTO redrive.endpoint_state AS s (org_id, endpoint_id, worker_id, owned_until)
  SELECT k.org_id, k.id, $4::uuid, clock.now + make_interval(secs => $5::float8)
    FROM clock, unnest($2::uuid[], $3::uuid[]) AS k(org_id, id) ORDER BY k.org_id, k.id
  ON CONFLICT (org_id, endpoint_id) DO UPDATE SET
         worker_id = excluded.worker_id,
         owned_until = CASE WHEN s.worker_id = excluded.worker_id THEN greatest(s.owned_until, excluded.owned_until)
                            ELSE excluded.owned_until END
   WHERE s.worker_id IS NULL OR s.worker_id = excluded.worker_id OR s.owned_until <= (SELECT now FROM clock)
  RETURNING s.org_id, s.endpoint_id, s.owned_until, s.paced_until, s.breaker, s.breaker_since)
SELECT o.org_id, o.endpoint_id, o.owned_until, o.paced_until, o.breaker, o.breaker_since, e.max_in_flight, e.rate_per_s,
       b.worker_id IS DISTINCT FROM $4::uuid AS is_new, clock.now
  FROM clock, owned o JOIN redrive.endpoint e ON e.org_id = o.org_id AND e.id = o.endpoint_id
  -- as it was before this statement
  LEFT JOIN redrive.endpoint_state b ON b.org_id = o.org_id AND b.endpoint_id = o.endpoint_id;
