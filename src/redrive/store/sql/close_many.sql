-- close_many: as close_dead_letter, where the tasks are locked. $1 org, $2 tasks, $3 state, $4 who, $5 why.
WITH closed AS (
  UPDATE redrive.dead_letter d SET state = $3, closed_at = clock_timestamp(), closed_by = $4, closed_because = $5,
         updated_at = clock_timestamp()
    FROM unnest($2::uuid[]) AS g(id)
   WHERE d.org_id = $1 AND d.task_id = g.id RETURNING 1)
SELECT count(*) AS n FROM closed;
