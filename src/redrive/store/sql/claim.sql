-- claim: lease due tasks to a worker. An expired lease is simply due again: taking it over records the lost try.
-- $1 now (NULL: the database's clock); then what is asked for, an array each: $2 queues, $3 orgs, $4 places (endpoints; see
-- task_stream), $5 whether retries or first tries, $6 how many at most, $7 and $8 where to begin (see below); $9 limit in
-- all, $10 worker, $11 seconds that a lease outlasts its try, $12 until when due (or NULL: now; then whatever is due is asked for).
-- Where a time is given, only what a person asked for is taken (task.expedited), and nothing that slows the endpoint down bars it.
--
-- The floor: rows settled since stay in the index until vacuum may remove them, and while somebody holds a snapshot
-- open that is never. A worker that drains a backlog begins behind the last row it took instead of stepping over all
-- of them again; it goes back to the start at short intervals, for rows that were committed late.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
-- Barred: only the worker that owns an endpoint may try its tasks while something is to be counted. What is shut is held whoever finds it.
asked AS MATERIALIZED (
  SELECT s.*, s.shut OR s.org_paused OR s.all_paused AS hold,
         NOT (s.shut OR s.org_paused OR s.all_paused) AND s.counted AND NOT s.owned AND s.due_until IS NULL AS barred
    FROM (
      SELECT a.*, clock.now, e.timeout_s AS endpoint_timeout_s, e.max_block_s, e.rate_per_s,
             -- When a person last ended a pause: a task that had grown too old by then gets one try all the same.
             greatest(e.resumed_at, o.resumed_at, (SELECT i.resumed_at FROM redrive.installation i WHERE i.singleton)) AS free_since,
             coalesce((e.disabled_at IS NOT NULL OR e.paused_at IS NOT NULL) AND e.deleted_at IS NULL, false) AS shut,
             -- Who paused everything is told of what goes on all the same.
             o.paused_at IS NOT NULL AND NOT starts_with(a.queue, 'notice.') AS org_paused,
             (SELECT i.paused_at IS NOT NULL FROM redrive.installation i WHERE i.singleton) AND NOT starts_with(a.queue, 'notice.') AS all_paused,
             coalesce(e.max_in_flight IS NOT NULL OR e.rate_per_s IS NOT NULL OR b.breaker <> 'closed', false) AS counted,
             coalesce(b.worker_id = $10::uuid AND b.owned_until > clock.now, false) AS owned
        FROM clock, unnest($2::text[], $3::uuid[], $4::uuid[], $5::boolean[], $6::int[], $7::timestamptz[], $8::uuid[], $12::timestamptz[])
               WITH ORDINALITY AS a(queue, org_id, place, is_retry, most, floor_due, floor_id, due_until, number)
        LEFT JOIN redrive.endpoint e ON e.org_id = a.org_id AND e.id = a.place
        LEFT JOIN redrive.endpoint_state b ON b.org_id = a.org_id AND b.endpoint_id = a.place
        LEFT JOIN redrive.org o ON o.org_id = a.org_id
      OFFSET 0) s),  -- each is asked once, not once for each place that names it
due AS MATERIALIZED (
  SELECT d.*, a.number, a.now, a.endpoint_timeout_s, a.max_block_s, a.rate_per_s, a.free_since, a.shut, a.org_paused, a.all_paused,
         a.hold, a.counted
    FROM asked a
   CROSS JOIN LATERAL (
     SELECT t.ctid AS disk_place, t.org_id, t.id, t.queue, t.state, t.endpoint_id, t.policy_id, t.due_at, t.fence, t.worker_id,
            t.leased_at
       FROM redrive.task t
      WHERE t.queue = a.queue AND t.org_id = a.org_id
        AND coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) = a.place AND (t.attempts > 0) = a.is_retry
        AND t.live AND t.behind IS NULL AND t.due_at <= coalesce(a.due_until, a.now) AND (t.due_at, t.id) > (a.floor_due, a.floor_id)
        AND (t.state = 'waiting' OR t.lease_ends_at <= a.now) AND (a.due_until IS NULL OR t.expedited)
      -- The planner does not take an expression for fixed because it is asked to equal something: it is named, or all of the
      -- stream would be sorted.
      ORDER BY coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid), t.due_at, t.id
      LIMIT a.most FOR UPDATE SKIP LOCKED) d
   WHERE NOT a.barred
   LIMIT $9),
seen AS MATERIALIZED (
  SELECT due.*, due.state = 'leased' AS lost, coalesce(due.endpoint_timeout_s, p.timeout_s) AS timeout_s
    FROM due JOIN redrive.policy p ON p.org_id = due.org_id AND p.id = due.policy_id),
-- Whoever enables or resumes releases what is held, and cannot see what is being held at that moment. So what shuts a task
-- out is locked (its endpoint, its org, the installation), and they wait for this claim. Where they were first
-- (or wait already: the gate), the tasks are passed over, as they are, for a later claim to look at again. They are answered, so that the floor passes them too.
shut_endpoints AS MATERIALIZED (
  SELECT e.org_id, e.id
    FROM (SELECT DISTINCT org_id, endpoint_id FROM seen WHERE shut) d
    JOIN redrive.endpoint e ON e.org_id = d.org_id AND e.id = d.endpoint_id
   WHERE (e.disabled_at IS NOT NULL OR e.paused_at IS NOT NULL) AND e.deleted_at IS NULL
     AND redrive.enter_gate(e.id) FOR SHARE OF e SKIP LOCKED),
shut_orgs AS MATERIALIZED (
  SELECT o.org_id
    FROM (SELECT DISTINCT org_id FROM seen WHERE org_paused) d
    JOIN redrive.org o ON o.org_id = d.org_id
   WHERE o.paused_at IS NOT NULL AND redrive.enter_gate(o.org_id) FOR SHARE OF o SKIP LOCKED),
shut_all AS MATERIALIZED (
  SELECT i.singleton
    FROM (SELECT FROM seen WHERE all_paused LIMIT 1) d
    JOIN redrive.installation i ON i.singleton
   WHERE i.paused_at IS NOT NULL AND redrive.enter_gate(i.id) FOR SHARE OF i SKIP LOCKED),
terms AS MATERIALIZED (
  SELECT seen.*, seen.hold AND NOT (
           EXISTS (SELECT FROM shut_all)
           OR seen.org_paused AND seen.org_id IN (SELECT org_id FROM shut_orgs)
           OR seen.shut AND EXISTS (
             SELECT FROM shut_endpoints s WHERE s.org_id = seen.org_id AND s.id = seen.endpoint_id)) AS passed
    FROM seen),
taken AS (
  -- By its place on disk, where the lock holds it: no look-up.
  UPDATE redrive.task t SET
         state = CASE WHEN terms.hold THEN 'held' ELSE 'leased' END,
         fence = t.fence + CASE WHEN terms.hold THEN 0 ELSE 1 END,
         worker_id = CASE WHEN terms.hold THEN NULL ELSE $10::uuid END,
         leased_at = CASE WHEN terms.hold THEN NULL ELSE terms.now END,
         lease_ends_at = CASE WHEN terms.hold THEN NULL ELSE terms.now + make_interval(secs => terms.timeout_s + $11) END,
         attempts = t.attempts + CASE WHEN terms.lost THEN 1 ELSE 0 END,
         first_failed_at = CASE WHEN terms.lost THEN coalesce(t.first_failed_at, terms.now) ELSE t.first_failed_at END,
         last_failed_at = CASE WHEN terms.lost THEN terms.now ELSE t.last_failed_at END,
         -- Of one that was redriven in its place nothing is left to be told: later ones were delivered since it died.
         out_of_order = CASE WHEN t.lane IS NOT NULL AND t.generation > 0 AND NOT EXISTS (
                                SELECT FROM redrive.lane_gap g WHERE g.org_id = t.org_id AND g.lane = t.lane AND g.place = t.place)
                             THEN true ELSE t.out_of_order END,
         expedited = false,
         updated_at = terms.now
    FROM terms
   WHERE t.ctid = terms.disk_place AND NOT terms.passed
  RETURNING t.org_id, t.id, t.event_id, t.endpoint_id, t.policy_id, t.kind, t.queue, t.event_type, t.fence, t.attempts,
            t.generation, t.begun_at, t.edit, t.state, t.due_at, t.lane, t.place, t.out_of_order, t.blocked_since, t.last_failed_at, t.lease_ends_at, t.run_id, t.step, t.trial,
            terms.timeout_s, terms.lost, terms.now, terms.max_block_s, terms.rate_per_s, terms.free_since, terms.number, terms.counted,
            terms.fence AS lost_fence, terms.worker_id AS lost_by, terms.leased_at AS lost_since),
-- Runs of workflows whose first step this is: they are under way.
begun AS (
  UPDATE redrive.run u SET status = 'RUNNING', started_at = taken.now, updated_at = taken.now
    FROM taken
   WHERE taken.step = 0 AND taken.fence = 1 AND taken.state = 'leased'
     AND u.org_id = taken.org_id AND u.id = taken.run_id AND u.status = 'PENDING'),
-- Nobody else may have the endpoint while a try of its owner may be under way, and its next owner has to know when its rate
-- allows another one. Locked in the order in which all who write here do it (record_health, own_endpoints): no two of them
-- wait for each other.
ours AS MATERIALIZED (
  SELECT b.org_id, b.endpoint_id, k.until, k.paced_until
    FROM (SELECT org_id, endpoint_id, max(lease_ends_at) AS until, min(now) + make_interval(secs => count(*) / min(rate_per_s)) AS paced_until
            FROM taken WHERE counted AND state = 'leased'
           GROUP BY org_id, endpoint_id) k
    JOIN redrive.endpoint_state b ON b.org_id = k.org_id AND b.endpoint_id = k.endpoint_id AND b.worker_id = $10::uuid
   ORDER BY b.org_id, b.endpoint_id FOR UPDATE OF b),
kept AS (
  UPDATE redrive.endpoint_state b SET owned_until = greatest(b.owned_until, ours.until), paced_until = ours.paced_until
    FROM ours WHERE b.org_id = ours.org_id AND b.endpoint_id = ours.endpoint_id AND b.worker_id = $10::uuid),
lost AS (
  INSERT INTO redrive.attempt (org_id, task_id, fence, generation, number, result, worker_id, started_at, ended_at,
                               category, possible_duplicate, error_message, error_stack)
  SELECT org_id, id, lost_fence, generation, attempts, 'lost', lost_by, lost_since, now,
         'timeout', true, 'The worker did not report before its lease ended: it died, hung, or was cut off.',
         format('Lease of worker %s, taken at %s, not settled at %s.', lost_by, lost_since, now)
    FROM taken WHERE lost)
SELECT t.org_id, t.id, t.event_id, t.endpoint_id, t.policy_id, t.kind, t.queue, t.event_type, t.fence, t.attempts,
       t.generation, t.begun_at, t.timeout_s, t.lost, t.now, e.correlation_id, coalesce(x.body, e.body),
       CASE WHEN x.body IS NULL OR e.content_type ~ 'json' THEN e.content_type ELSE 'application/json' END,
       e.headers, x.headers AS edited_headers, t.lane,
       CASE WHEN t.lane IS NULL THEN 0 ELSE (
         SELECT count(*)::int FROM redrive.lane_gap g WHERE g.org_id = t.org_id AND g.lane = t.lane AND g.place < t.place) END,
       coalesce(t.out_of_order, false), t.max_block_s, t.blocked_since + (t.now - least(t.due_at, t.now)),
       CASE WHEN t.last_failed_at >= greatest(t.free_since, l.resumed_at) THEN NULL ELSE greatest(t.free_since, l.resumed_at) END AS free_since, t.run_id, t.step, u.traceparent, e.submitted_by, t.trial, t.state, t.due_at, t.number,
       t.state = 'leased' AND u.status = 'PENDING' AS begins  -- it is RUNNING now
  FROM taken t JOIN redrive.event e ON e.org_id = t.org_id AND e.id = t.event_id
  -- Without an edit there is no number to look for, without a lane no lane, without a run no run: nothing is read.
  LEFT JOIN redrive.edit x ON x.org_id = t.org_id AND x.task_id = t.id AND x.number = t.edit
  LEFT JOIN redrive.lane l ON l.org_id = t.org_id AND l.lane = t.lane
  LEFT JOIN redrive.run u ON u.org_id = t.org_id AND u.id = t.run_id
 UNION ALL
SELECT p.org_id, p.id, NULL, NULL, NULL, NULL, p.queue, NULL, NULL, NULL, NULL, NULL, NULL, NULL, p.now, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'passed', p.due_at, p.number, NULL
  FROM terms p WHERE p.passed
 UNION ALL
SELECT a.org_id, NULL, NULL, NULL, NULL, NULL, a.queue, NULL, NULL, NULL, NULL, NULL, NULL, NULL, a.now, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'barred', NULL, a.number, NULL
  FROM asked a WHERE a.barred
 ORDER BY due_at, id;
