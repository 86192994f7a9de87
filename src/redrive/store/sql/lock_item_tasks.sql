-- lock_item_tasks: hold the tasks of some items still, in the order in which settlements take them. $1 org, $2 operation,
-- $3 the last item before, $4 the last item. So are the runs of those that are steps, where none of their steps is under way: of
-- each one alone may be redriven.
WITH item AS MATERIALIZED (
  SELECT i.org_id, i.task_id FROM redrive.operation_item i
   WHERE i.org_id = $1 AND i.operation_id = $2 AND i.n > $3 AND i.n <= $4 ORDER BY i.n),
locked AS MATERIALIZED (
  SELECT t.org_id, t.id, t.run_id FROM item JOIN redrive.task t ON t.org_id = item.org_id AND t.id = item.task_id ORDER BY t.id FOR UPDATE OF t),
runs AS MATERIALIZED (
  SELECT r.id FROM redrive.run r
   WHERE r.org_id = $1 AND r.id IN (SELECT run_id FROM locked) AND r.status NOT IN ('PENDING', 'RUNNING') ORDER BY r.id FOR UPDATE)
SELECT (SELECT count(*) FROM locked) AS n, (SELECT count(*) FROM runs) AS runs;
