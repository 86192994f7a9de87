-- wake_lanes: lanes to which something was added get a head, if they have none. It is due from then on, and what waited behind a halt
-- begins when that was lifted. $1 at most so many
-- lanes, $2 now (NULL: the database's clock). The streams of the new heads are answered.
--
-- Whether a lane has a head is known for certain only under that head's lock: a transaction that ends it, and does not see what
-- was added, may be about to commit. Where it cannot be locked, the wake-up stays for the next look.
-- One worker at a time. One that waited for its turn with an older view finds its choice changed, or runs into the index of
-- heads; either way no lane gets two. However often a lane was woken, it is looked at once: the index is stepped through.
WITH RECURSIVE turn AS MATERIALIZED (
  SELECT pg_try_advisory_xact_lock(1380271956, 0) AS is_ours),
step AS (
  (SELECT w.org_id, w.lane FROM redrive.lane_wake w WHERE (SELECT is_ours FROM turn) ORDER BY w.org_id, w.lane LIMIT 1)
  UNION ALL
  SELECT n.org_id, n.lane
    FROM step s CROSS JOIN LATERAL (
      SELECT w.org_id, w.lane FROM redrive.lane_wake w
       WHERE (w.org_id, w.lane) > (s.org_id, s.lane) ORDER BY w.org_id, w.lane LIMIT 1) n),
woken AS MATERIALIZED (
  SELECT org_id, lane FROM step LIMIT $1),
lanes AS MATERIALIZED (
  SELECT d.org_id, d.lane, h.id AS head, l.halted_at IS NOT NULL AS is_halted, l.resumed_at
    FROM woken d
    LEFT JOIN redrive.lane l ON l.org_id = d.org_id AND l.lane = d.lane
    LEFT JOIN redrive.task h ON h.org_id = d.org_id AND h.lane = d.lane AND h.lane IS NOT NULL AND h.open AND h.behind IS NULL),
locked AS MATERIALIZED (
  SELECT h.org_id, h.lane
    FROM lanes l JOIN redrive.task h ON h.org_id = l.org_id AND h.id = l.head AND h.open AND h.behind IS NULL
     FOR UPDATE OF h SKIP LOCKED),
first AS MATERIALIZED (
  SELECT f.org_id, f.id, l.resumed_at
    FROM lanes l CROSS JOIN LATERAL (
      SELECT t.org_id, t.id FROM redrive.task t
       WHERE t.org_id = l.org_id AND t.lane = l.lane AND t.behind AND t.open
       ORDER BY t.place LIMIT 1 FOR UPDATE) f
   WHERE l.head IS NULL AND NOT l.is_halted),
promoted AS (
  UPDATE redrive.task t SET behind = NULL, due_at = greatest(t.due_at, coalesce($2::timestamptz, clock_timestamp())),
         begun_at = greatest(t.begun_at, first.resumed_at)
    FROM first WHERE t.org_id = first.org_id AND t.id = first.id
  RETURNING t.queue, t.org_id, t.endpoint_id, t.attempts > 0 AS is_retry),
seen AS (
  DELETE FROM redrive.lane_wake w USING lanes l
   WHERE w.org_id = l.org_id AND w.lane = l.lane
     AND (l.head IS NULL OR EXISTS (SELECT FROM locked k WHERE k.org_id = l.org_id AND k.lane = l.lane)))
-- The others are told, too: whoever wakes a lane may not be the one who can serve it.
SELECT p.queue, p.org_id, coalesce(p.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) AS place, p.is_retry,
       (SELECT count(*)::int FROM woken) AS woken,
       (SELECT redrive.tell(array_agg(d.queue), array_agg(d.org_id), array_agg(d.endpoint_id))
          FROM (SELECT DISTINCT queue, org_id, endpoint_id FROM promoted) d)::text AS told
  FROM turn LEFT JOIN promoted p ON true;
