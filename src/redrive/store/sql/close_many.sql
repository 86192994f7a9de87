-- close_many: as close_dead_letter, where the tasks are locked. $1 org, $2 tasks, $3 state, $4 who, $5 why.
WITH chosen AS MATERIALIZED (SELECT $1::uuid AS org_id, g.id FROM unnest($2::uuid[]) AS g(id)),
closed AS (
  UPDATE redrive.dead_letter d SET state = $3, closed_at = clock_timestamp(), closed_by = $4, closed_because = $5,
         updated_at = clock_timestamp()
    FROM chosen c
   WHERE d.org_id = c.org_id AND d.task_id = c.id RETURNING 1)
SELECT count(*) AS n FROM closed;
