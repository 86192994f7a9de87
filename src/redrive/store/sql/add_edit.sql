-- add_edit: the next edit of a task whose dead letter is locked. $1 org, $2 task, $3 generation that it begins, $4 body,
-- $5 headers, $6 diff, $7 whether the diff is cut, $8 now, $9 who, $10 why.
INSERT INTO redrive.edit (org_id, task_id, number, generation, body, headers, diff, diff_is_cut, at, by, because)
SELECT $1, $2, coalesce(max(e.number), 0) + 1, $3, $4, $5, $6::jsonb, $7, coalesce($8::timestamptz, clock_timestamp()), $9, $10
  FROM redrive.edit e WHERE e.org_id = $1 AND e.task_id = $2
RETURNING number;
