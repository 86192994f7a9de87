-- tell_operation: a person pauses, resumes or cancels it. $1 org, $2 id, $3 state, $4 now. What paused it by itself is
-- no news any more. A cancelled one has ended when nothing of it is under way.
UPDATE redrive.operation o SET state = $3, note = NULL, step_at = clock.now, updated_at = clock.now,
       finished_at = CASE WHEN $3 = 'cancelled' AND o.succeeded + o.failed = o.dispatched THEN clock.now END
  FROM (SELECT coalesce($4::timestamptz, clock_timestamp()) AS now) clock
 WHERE o.org_id = $1 AND o.id = $2
RETURNING o.*;
