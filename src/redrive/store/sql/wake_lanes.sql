-- wake_lanes: lanes to which something was added get a head, if they have none. It is due from then on. $1 at most so many
-- wake-ups, $2 now (NULL: the database's clock), $3 behind this number. The streams of the new heads are answered.
--
-- Whether a lane has a head is known for certain only under that head's lock: a transaction that ends it, and does not see what
-- was added, may be about to commit. Where it cannot be locked, the wake-up stays for the next look.
-- One worker at a time. One that waited for its turn with an older view finds its choice changed, or runs into the index of
-- heads; either way no lane gets two. However often a lane was woken, it is looked at once.
WITH turn AS MATERIALIZED (
  SELECT pg_try_advisory_xact_lock(1380271956, 0) AS is_ours),
seen AS MATERIALIZED (
  SELECT w.number, w.org_id, w.lane FROM redrive.lane_wake w
   WHERE (SELECT is_ours FROM turn) AND w.number > $3::bigint ORDER BY w.number LIMIT $1),
lanes AS MATERIALIZED (
  -- One by one, by their keys: joined as a whole, each of a thousand would be compared with each.
  SELECT d.org_id, d.lane, d.numbers, h.id AS head, l.halted_at IS NOT NULL AS is_halted
    FROM (SELECT org_id, lane, array_agg(number) AS numbers FROM seen GROUP BY org_id, lane) d
    LEFT JOIN LATERAL (
      SELECT n.halted_at FROM redrive.lane n WHERE n.org_id = d.org_id AND n.lane = d.lane LIMIT 1) l ON true
    LEFT JOIN LATERAL (
      SELECT t.id FROM redrive.task t
       WHERE t.org_id = d.org_id AND t.lane = d.lane AND t.lane IS NOT NULL AND t.open AND t.behind IS NULL LIMIT 1) h ON true),
locked AS MATERIALIZED (
  SELECT h.org_id, h.lane
    FROM lanes l JOIN redrive.task h ON h.org_id = l.org_id AND h.id = l.head AND h.open AND h.behind IS NULL
     FOR UPDATE OF h SKIP LOCKED),
first AS MATERIALIZED (
  SELECT f.org_id, f.id
    FROM lanes l CROSS JOIN LATERAL (
      SELECT t.org_id, t.id FROM redrive.task t
       WHERE t.org_id = l.org_id AND t.lane = l.lane AND t.behind AND t.open
       ORDER BY t.place LIMIT 1 FOR UPDATE) f
   WHERE l.head IS NULL AND NOT l.is_halted),
promoted AS (
  UPDATE redrive.task t SET behind = NULL, due_at = greatest(t.due_at, coalesce($2::timestamptz, clock_timestamp()))
    FROM first WHERE t.org_id = first.org_id AND t.id = first.id
  RETURNING t.queue, t.org_id, t.endpoint_id, t.attempts > 0 AS is_retry),
judged AS MATERIALIZED (
  SELECT unnest(l.numbers) AS number, l.head IS NULL OR (l.org_id, l.lane) IN (SELECT k.org_id, k.lane FROM locked k) AS is_done
    FROM lanes l),
gone AS (
  -- by their numbers, too: the table is empty most of the time, and taken for so small that each would be compared with each
  DELETE FROM redrive.lane_wake w WHERE w.number = ANY (ARRAY(SELECT j.number FROM judged j WHERE j.is_done)))
-- The others are told, too: whoever wakes a lane may not be the one who can serve it.
SELECT p.queue, p.org_id, coalesce(p.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) AS place, p.is_retry,
       turn.is_ours, j.n AS seen, j.last, j.done_to,
       (SELECT redrive.tell(array_agg(d.queue), array_agg(d.org_id), array_agg(d.endpoint_id))
          FROM (SELECT DISTINCT queue, org_id, endpoint_id FROM promoted) d)::text AS told
  FROM turn
 CROSS JOIN (SELECT count(*)::int AS n, max(number) AS last,
                    coalesce(min(number) FILTER (WHERE NOT is_done) - 1, max(number)) AS done_to FROM judged) j
  LEFT JOIN promoted p ON true;
