-- close_dead_letter: a person is done with it, without success. $1 org, $2 task, $3 state, $4 who, $5 why.
UPDATE redrive.dead_letter SET state = $3, closed_at = clock_timestamp(), closed_by = $4, closed_because = $5,
       updated_at = clock_timestamp()
 WHERE org_id = $1 AND task_id = $2;
