-- list_operations: newest first: ids are made by the database, in the order of time. $1 org, $2 state, $3 whether it is still
-- active (not ended: paused ones are), $4 by whom, $5 before, $6 limit.
SELECT * FROM redrive.operation o
 WHERE o.org_id = $1 AND ($2::text IS NULL OR o.state = $2) AND ($3::bool IS NULL OR (o.finished_at IS NULL) = $3)
   AND ($4::text IS NULL OR o.actor = $4) AND ($5::uuid IS NULL OR o.id < $5)
 ORDER BY o.id DESC LIMIT $6;
