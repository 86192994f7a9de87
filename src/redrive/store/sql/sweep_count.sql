-- sweep_count: what would go with these events. $1 org, $2 ids.
WITH tasks AS MATERIALIZED (
  SELECT t.id FROM redrive.task t WHERE t.org_id = $1 AND t.event_id = ANY ($2::uuid[]))
SELECT e.events, (SELECT count(*) FROM tasks) AS tasks,
       (SELECT count(*) FROM tasks t JOIN redrive.attempt a ON a.org_id = $1 AND a.task_id = t.id) AS attempts,
       (SELECT count(*) FROM tasks t JOIN redrive.dead_letter d ON d.org_id = $1 AND d.task_id = t.id) AS dead_letters, e.bytes
  FROM (SELECT count(*) AS events, coalesce(sum(octet_length(b.body)), 0)::bigint AS bytes
          FROM redrive.event b WHERE b.org_id = $1 AND b.id = ANY ($2::uuid[])) e;
