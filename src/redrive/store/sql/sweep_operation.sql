-- sweep_operation: which of the items sent have their result. $1 org, $2 operation, $3 at most.
-- The result is that of the first try since: whatever was given back untried is no try. A task that will not be tried, or
-- not for now, has failed, too. By place on disk: nobody else changes items of a locked operation.
WITH sent AS MATERIALIZED (
  SELECT i.ctid AS place, i.org_id, i.task_id, i.fence FROM redrive.operation_item i
   WHERE i.org_id = $1 AND i.operation_id = $2 AND i.state = 'sent' ORDER BY i.n LIMIT $3),
ended AS MATERIALIZED (
  SELECT s.place, CASE coalesce(a.result, t.state) WHEN 'succeeded' THEN 'succeeded' ELSE 'failed' END AS state,
         CASE WHEN coalesce(a.result, t.state) = 'succeeded' THEN NULL
              WHEN a.result IS NOT NULL THEN left(a.error_message, 500)
              WHEN t.id IS NULL THEN 'It is gone.'
              WHEN t.state = 'held' THEN 'It is held, since its endpoint is disabled or paused.'
              ELSE 'It ended without a try.' END AS note
    FROM sent s
    LEFT JOIN redrive.task t ON t.org_id = s.org_id AND t.id = s.task_id
    LEFT JOIN LATERAL (
      SELECT a.result, a.error_message FROM redrive.attempt a
       WHERE a.org_id = s.org_id AND a.task_id = s.task_id AND a.fence > s.fence AND a.result <> 'released'
       ORDER BY a.fence LIMIT 1) a ON true
   WHERE a.result IS NOT NULL OR t.id IS NULL OR t.state IN ('held', 'dead', 'succeeded')),
marked AS (
  UPDATE redrive.operation_item i SET state = e.state, note = e.note FROM ended e WHERE i.ctid = e.place
  RETURNING i.state)
SELECT count(*) FILTER (WHERE state = 'succeeded')::int AS succeeded, count(*) FILTER (WHERE state = 'failed')::int AS failed
  FROM marked;
