-- top_endpoints: those that fail most or whose breaker is not closed, by the tries of the last ten minutes or so. $1 org (NULL: all), $2 now (NULL: the
-- database's clock), $3 limit.
WITH told AS MATERIALIZED (  -- by age, of which the planner knows nothing better than that the newest stand together
  SELECT h.* FROM redrive.endpoint_history h
   WHERE h.bucket > coalesce($2::timestamptz, clock_timestamp()) - interval '10 minutes' ORDER BY h.bucket DESC LIMIT 20000),
lately AS MATERIALIZED (
  SELECT h.org_id, h.endpoint_id, sum(h.succeeded)::bigint AS succeeded, sum(h.failed)::bigint AS failed,
         (sum(h.took_ms) / greatest(sum(h.succeeded + h.failed), 1))::float8 AS mean_ms
    FROM told h
   WHERE $1::uuid IS NULL OR h.org_id = $1
   GROUP BY h.org_id, h.endpoint_id),
shut AS MATERIALIZED (
  SELECT s.org_id, s.endpoint_id, s.breaker FROM redrive.endpoint_state s
   WHERE s.breaker <> 'closed' AND ($1::uuid IS NULL OR s.org_id = $1))
SELECT o.name AS org, e.name, coalesce(l.succeeded, 0) AS succeeded, coalesce(l.failed, 0) AS failed, l.mean_ms,
       CASE WHEN e.disabled_at IS NOT NULL THEN 'disabled' WHEN e.paused_at IS NOT NULL THEN 'paused' ELSE coalesce(s.breaker, 'closed') END AS state
  FROM lately l FULL JOIN shut s ON s.org_id = l.org_id AND s.endpoint_id = l.endpoint_id
  JOIN redrive.endpoint e ON e.org_id = coalesce(l.org_id, s.org_id) AND e.id = coalesce(l.endpoint_id, s.endpoint_id) AND e.deleted_at IS NULL
  JOIN redrive.org o ON o.org_id = e.org_id
 ORDER BY s.breaker IS NOT NULL DESC, coalesce(l.failed, 0) DESC, coalesce(l.succeeded, 0) DESC, e.name LIMIT $3;
