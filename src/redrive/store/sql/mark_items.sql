-- mark_items: what became of items when they were acted on. $1 org, $2 operation, $3 the last item before, $4 the last item,
-- then one array each: $5 states, $6 fences, $7 notes. By place on disk: nobody else changes items of a locked operation.
WITH item AS MATERIALIZED (
  SELECT i.ctid AS place, i.n - $3 AS k FROM redrive.operation_item i
   WHERE i.org_id = $1 AND i.operation_id = $2 AND i.n > $3 AND i.n <= $4 ORDER BY i.n)
UPDATE redrive.operation_item i SET state = ($5::text[])[item.k], fence = ($6::int[])[item.k], note = ($7::text[])[item.k]
  FROM item WHERE i.ctid = item.place;
