-- note_replay: a dead letter whose task has succeeded is replayed by another task. $1 org, $2 task, $3 now (NULL: the database's clock),
-- $4 who, $5 why.
UPDATE redrive.dead_letter d SET replays = d.replays + 1, replayed_at = c.now, replayed_by = $4, replayed_because = $5, updated_at = c.now
  FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) c
 WHERE d.org_id = $1 AND d.task_id = $2;
