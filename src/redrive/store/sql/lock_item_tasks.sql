-- lock_item_tasks: hold the tasks of some items still, in the order in which settlements take them. $1 org, $2 operation,
-- $3 the last item before, $4 the last item.
WITH item AS MATERIALIZED (
  SELECT i.org_id, i.task_id FROM redrive.operation_item i
   WHERE i.org_id = $1 AND i.operation_id = $2 AND i.n > $3 AND i.n <= $4 ORDER BY i.n),
locked AS MATERIALIZED (
  SELECT t.id FROM item JOIN redrive.task t ON t.org_id = item.org_id AND t.id = item.task_id ORDER BY t.id FOR UPDATE OF t)
SELECT count(*) AS n FROM locked;
