-- mark_many: as mark_dead_letter, where the tasks are locked. $1 org, $2 tasks, $3 state, $4 who, $5 why.
WITH chosen AS MATERIALIZED (SELECT $1::uuid AS org_id, g.id FROM unnest($2::uuid[]) AS g(id)),
marked AS (
  UPDATE redrive.dead_letter d SET state = $3, updated_at = clock_timestamp(),
         closed_at = CASE WHEN $3 <> 'open' THEN clock_timestamp() END,
         closed_by = CASE WHEN $3 <> 'open' THEN $4 END, closed_because = CASE WHEN $3 <> 'open' THEN $5 END
    FROM chosen c
   WHERE d.org_id = c.org_id AND d.task_id = c.id RETURNING 1)
SELECT count(*) AS n FROM marked;
