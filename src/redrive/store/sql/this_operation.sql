-- this_operation: one operation, where it is active and nobody is at it. $1 now, $2 org, $3 id.
SELECT o.*, coalesce($1::timestamptz, clock_timestamp()) AS now FROM redrive.operation o
 WHERE o.org_id = $2 AND o.id = $3 AND o.active FOR UPDATE SKIP LOCKED;
