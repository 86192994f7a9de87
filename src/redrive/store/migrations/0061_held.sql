-- What an endpoint holds, in one place: tasks in the state held, and those that are due and that its breaker keeps back. Each is counted
-- as far as p_most says. The queues are those in which a task has an endpoint (core.ports, core.channels, core.broker).
CREATE FUNCTION redrive.kept_back(p_org uuid, p_endpoint uuid, p_now timestamptz, p_most bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT count(*) FROM (
    SELECT FROM redrive.endpoint_state s
     CROSS JOIN unnest(ARRAY['http', 'step.http', 'notice.http', 'relay', 'rabbitmq', 'mail', 'notice.mail', 'apprise', 'notice.apprise']) AS q(queue)
     CROSS JOIN (VALUES (false), (true)) AS r(is_retry)
     CROSS JOIN LATERAL (
       SELECT FROM redrive.task t
        WHERE t.queue = q.queue AND t.org_id = p_org
          AND coalesce(t.endpoint_id, '00000000-0000-0000-0000-000000000000'::uuid) = p_endpoint AND (t.attempts > 0) = r.is_retry
          AND t.live AND t.behind IS NULL AND t.due_at <= coalesce(p_now, clock_timestamp()) AND t.state = 'waiting'
        LIMIT p_most) w
     WHERE s.org_id = p_org AND s.endpoint_id = p_endpoint AND s.breaker <> 'closed' LIMIT p_most) c
$$;

CREATE FUNCTION redrive.held_by_endpoint(p_org uuid, p_endpoint uuid, p_now timestamptz, p_most bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT least(p_most, redrive.kept_back(p_org, p_endpoint, p_now, p_most) + (
    SELECT count(*) FROM (
      SELECT FROM redrive.task t WHERE t.org_id = p_org AND t.endpoint_id = p_endpoint AND t.open AND NOT t.live LIMIT p_most) c))
$$;
