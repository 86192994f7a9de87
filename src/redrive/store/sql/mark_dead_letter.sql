-- mark_dead_letter: a person says what it is to them: done with, without success, or open again. $1 org, $2 task, $3 state,
-- $4 who, $5 why.
UPDATE redrive.dead_letter SET state = $3, updated_at = clock_timestamp(),
       closed_at = CASE WHEN $3 <> 'open' THEN clock_timestamp() END,
       closed_by = CASE WHEN $3 <> 'open' THEN $4 END, closed_because = CASE WHEN $3 <> 'open' THEN $5 END
 WHERE org_id = $1 AND task_id = $2;
