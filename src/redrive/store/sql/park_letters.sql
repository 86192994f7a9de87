-- park_letters: dead letters of steps that a replay will come to: they are being replayed, though their tasks are dead until then.
-- $1 org, $2 tasks, $3 now (NULL: the database's clock), $4 who, $5 why.
UPDATE redrive.dead_letter d SET state = 'replaying', replays = d.replays + 1, replayed_at = c.now, replayed_by = $4, replayed_because = $5,
       replay_outcome = NULL, closed_at = NULL, closed_by = NULL, closed_because = NULL, updated_at = c.now
  FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) c
 WHERE d.org_id = $1 AND d.task_id = ANY ($2::uuid[]);
