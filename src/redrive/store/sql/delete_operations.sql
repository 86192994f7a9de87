-- delete_operations: operations that ended long ago, oldest first, each with its items. Of one with more items than a batch takes
-- ($4) they go over several batches, and it with the last of them. $1 org, $2 now, $3 seconds, $5 at most so many operations.
WITH old AS MATERIALIZED (
  SELECT o.id, o.finished_at, l.n
    FROM redrive.operation o
   CROSS JOIN LATERAL (
     SELECT count(*) AS n FROM (
       SELECT FROM redrive.operation_item i WHERE i.org_id = o.org_id AND i.operation_id = o.id LIMIT $4 + 1) left_over) l
   WHERE o.org_id = $1 AND o.finished_at < $2::timestamptz - make_interval(secs => $3::float8)
   ORDER BY o.finished_at, o.id LIMIT $5),
turn AS MATERIALIZED (
  SELECT id, sum(n) OVER age <= $4 AS whole, row_number() OVER age = 1 AS first FROM old WINDOW age AS (ORDER BY finished_at, id)),
items AS (
  DELETE FROM redrive.operation_item i
   USING (SELECT t.id, k.n FROM turn t CROSS JOIN LATERAL (
            SELECT k.n FROM redrive.operation_item k
             WHERE k.org_id = $1 AND k.operation_id = t.id ORDER BY k.n LIMIT $4) k
           WHERE t.whole OR t.first) d
   WHERE i.org_id = $1 AND i.operation_id = d.id AND i.n = d.n RETURNING 1),
gone AS (
  DELETE FROM redrive.operation o USING turn t WHERE o.org_id = $1 AND o.id = t.id AND t.whole RETURNING 1)
SELECT (SELECT count(*) FROM gone) AS operations, (SELECT count(*) FROM items) AS items;
