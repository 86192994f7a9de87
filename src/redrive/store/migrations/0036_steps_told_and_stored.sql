-- What was there before learns of steps and runs.

-- The letter of a step is configured by its workflow: what is told of its death names that, not a handler that it may not have.
CREATE OR REPLACE FUNCTION redrive.note_deaths(p_orgs uuid[], p_tasks uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  g       record;
  v_room  integer;
BEGIN
  FOR g IN
    SELECT a.org_id, max(a.at) AS at, count(*)::integer AS n, array_agg(a.task_id ORDER BY a.turn, a.task_id) AS tasks
      FROM (SELECT d.org_id, d.task_id, d.created_at AS at,
                   row_number() OVER (PARTITION BY d.org_id, d.fingerprint ORDER BY d.task_id) AS turn
              FROM unnest(p_orgs, p_tasks) AS r(org_id, task_id)
              JOIN redrive.dead_letter d ON d.org_id = r.org_id AND d.task_id = r.task_id
              JOIN redrive.task t ON t.org_id = d.org_id AND t.id = d.task_id
              JOIN redrive.policy p ON p.org_id = t.org_id AND p.id = t.policy_id
             WHERE t.is_test IS NOT TRUE AND redrive.announces(d.reason, p.spec)) a
     GROUP BY a.org_id ORDER BY a.org_id
  LOOP
    v_room := greatest(redrive.notice_room(g.org_id, 'dead_letter', g.at), 0);
    INSERT INTO redrive.notice (org_id, id, at, kind, severity, subject_kind, subject_id, text, facts)
    SELECT d.org_id, redrive.uuid7(), d.created_at, 'dead_letter', 'error', 'dead_letter', d.task_id,
           format('%s for %s is a dead letter: %s. The error: %s Retry, resolve or ignore it once its cause is dealt with.',
                  left(d.event_type, 200),
                  CASE WHEN d.kind = 'step' THEN 'the workflow "' || (d.config ->> 'workflow') || '"'
                       ELSE coalesce('endpoint "' || (d.config ->> 'name') || '"', 'its handler') END,
                  CASE d.reason WHEN 'permanent' THEN 'another try would not help'
                                WHEN 'exhausted' THEN 'its retries are used up'
                                ELSE 'it is older than its policy allows' END,
                  rtrim(left(d.error_message, 300), '. ') || '.'),
           jsonb_build_object('task_id', d.task_id, 'event_id', d.event_id, 'event_type', left(d.event_type, 200),
                              'external_system', left(d.external_system, 200), 'endpoint_id', d.endpoint_id,
                              'endpoint', CASE d.kind WHEN 'step' THEN d.config -> 'endpoint' ->> 'name' ELSE d.config ->> 'name' END,
                              'reason', d.reason, 'category', d.category, 'fingerprint', d.fingerprint, 'generation', d.generation)
      FROM unnest(g.tasks[1:v_room]) AS r(task_id)
      JOIN redrive.dead_letter d ON d.org_id = g.org_id AND d.task_id = r.task_id;
    IF g.n > v_room THEN
      PERFORM redrive.note_more(g.org_id, 'dead_letter', 'error', g.at, g.n - v_room);
    END IF;
  END LOOP;
END $$;

-- What runs begin with takes room, as events do.
CREATE OR REPLACE VIEW redrive.org_entry WITH (security_invoker = true) AS
SELECT o.org_id, o.name, o.created_at, (SELECT l.spec FROM redrive.org_limits l WHERE l.org_id = o.org_id) AS limits,
       (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c
         WHERE c.org_id = o.org_id AND c.name IN ('event.bytes', 'run.bytes')) AS stored_bytes,
       (SELECT count(*) FROM redrive.endpoint e WHERE e.org_id = o.org_id AND e.deleted_at IS NULL) AS endpoints
  FROM redrive.org o;
