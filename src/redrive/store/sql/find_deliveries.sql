-- find_deliveries: an endpoint's tasks, newest first. Their order is that of an index; what became of them is not in one, so a
-- filter looks at a bounded number of rows: `looked` tells how many it were, `last` where they end.
-- (BETWEEN and an order that begins with the endpoint, as endpoint_health: where one endpoint had most of the tasks when the table was
-- analysed, the planner would take = for always true, and go through the newest tasks of all endpoints.)
-- $1 org, $2 endpoint, $3 status (NULL: any), $4 before this task, $5 how many to find, $6 how many to look at.
WITH looked AS MATERIALIZED (
  SELECT t.id, t.state, t.reason FROM redrive.task t
   WHERE t.org_id = $1 AND t.endpoint_id BETWEEN $2 AND $2 AND ($4::uuid IS NULL OR t.id < $4)
   ORDER BY t.endpoint_id DESC, t.id DESC LIMIT $6),
found AS (
  SELECT id FROM looked
   WHERE CASE $3::text
           WHEN 'pending' THEN state IN ('waiting', 'leased', 'held')
           WHEN 'delivered' THEN state = 'succeeded'
           WHEN 'failed' THEN state = 'dead' AND reason = 'permanent'
           WHEN 'dead_letter' THEN state = 'dead' AND reason <> 'permanent'
           ELSE true END
   ORDER BY id DESC LIMIT $5)
SELECT ARRAY(SELECT id FROM found ORDER BY id DESC) AS ids, (SELECT count(*) FROM looked) AS looked,
       (SELECT id FROM looked ORDER BY id LIMIT 1) AS last;
