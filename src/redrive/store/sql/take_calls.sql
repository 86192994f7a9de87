-- take_calls: dead letters that a callback is to hear of, oldest first, for a while; where the process is killed meanwhile, another
-- one takes them. One whose last call never ended is over: it is answered too, once, for somebody to say so. What is older than
-- $2 seconds is passed over. $1 now, $3 most calls, $4 seconds that they are taken for, $5 limit.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
due AS MATERIALIZED (
  SELECT n.org_id, n.id
    FROM redrive.notice n, clock
   WHERE n.called_at IS NULL AND n.kind = 'dead_letter' AND n.at > clock.now - make_interval(secs => $2::float8)
     AND (n.call_at IS NULL OR n.call_at <= clock.now)
   ORDER BY n.at, n.id LIMIT $5 FOR UPDATE OF n SKIP LOCKED),
taken AS (
  UPDATE redrive.notice n SET
         calls = least(n.calls + 1, $3), called_at = CASE WHEN n.calls >= $3 THEN clock.now END,
         call_at = clock.now + make_interval(secs => $4::float8)
    FROM clock, due WHERE n.org_id = due.org_id AND n.id = due.id
  RETURNING n.*)
SELECT t.org_id, o.name AS org, t.id, t.at, t.kind, t.severity, t.subject_kind, t.subject_id, t.text, t.facts, t.calls, t.called_at IS NOT NULL AS is_over
  FROM taken t JOIN redrive.org o ON o.org_id = t.org_id
 ORDER BY t.at, t.id;
