-- check_due: a waiting task is due within its policy's reach; never (infinity) only where a person retries.
-- $1 now (NULL: the database's clock), $2 grace in seconds.
WITH reach AS (
  SELECT p.org_id, p.id, p.name, p.spec ->> 'kind' = 'manual' AS by_a_person,
         make_interval(secs => $2::float8 + (1 + coalesce((p.spec ->> 'jitter')::float8, 0)) * greatest(
           coalesce((p.spec ->> 'cap_s')::float8, 0), coalesce((p.spec ->> 'max_retry_after_s')::float8, 0),
           coalesce((SELECT max(s::float8) FROM jsonb_array_elements_text(p.spec -> 'delays_s') AS s), 0))) AS reach
    FROM redrive.policy p)
SELECT t.org_id, t.id, format('the task is due at %s under policy %s', t.due_at, r.name) AS detail
  FROM redrive.task t
  JOIN reach r ON r.org_id = t.org_id AND r.id = t.policy_id
 WHERE t.state = 'waiting' AND NOT (t.run_id IS NOT NULL AND (t.attempts = 0 OR t.queue = 'step'))  -- a step may wait for as long as its workflow says
   AND CASE WHEN isfinite(t.due_at) THEN t.due_at > coalesce($1::timestamptz, transaction_timestamp()) + r.reach
            ELSE NOT r.by_a_person END
 LIMIT 11;
