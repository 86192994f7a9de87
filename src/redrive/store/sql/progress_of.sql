-- progress_of: how far tasks have come. $1 org, $2 tasks.
SELECT t.id, t.state, t.attempts, t.generation FROM redrive.task t WHERE t.org_id = $1 AND t.id = ANY ($2::uuid[]);
