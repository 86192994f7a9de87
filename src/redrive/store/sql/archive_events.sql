-- archive_events: all that is known of events, a row for each thing, for an archive: what it is, its columns, and the one of
-- them that holds bytes. $1 org, $2 ids.
WITH tasks AS MATERIALIZED (
  SELECT t.id FROM redrive.task t WHERE t.org_id = $1 AND t.event_id = ANY ($2::uuid[]))
SELECT 'event' AS record, (to_jsonb(e) - 'body')::text AS columns, e.body AS bytes
  FROM redrive.event e WHERE e.org_id = $1 AND e.id = ANY ($2::uuid[])
UNION ALL
SELECT 'task', (to_jsonb(k) || jsonb_build_object('policy', p.name))::text, NULL
  FROM tasks t JOIN redrive.task k ON k.org_id = $1 AND k.id = t.id
  JOIN redrive.policy p ON p.org_id = k.org_id AND p.id = k.policy_id
UNION ALL
SELECT 'attempt', (to_jsonb(a) - 'response_body')::text, a.response_body
  FROM tasks t JOIN redrive.attempt a ON a.org_id = $1 AND a.task_id = t.id
UNION ALL
SELECT 'dead_letter', to_jsonb(d)::text, NULL
  FROM tasks t JOIN redrive.dead_letter d ON d.org_id = $1 AND d.task_id = t.id
UNION ALL
SELECT 'broker_message', to_jsonb(b)::text, NULL
  FROM tasks t JOIN redrive.broker_message b ON b.org_id = $1 AND b.task_id = t.id
UNION ALL
-- Of headers the names: what a person sets in one may be a credential.
SELECT 'edit', (to_jsonb(x) - 'body' || jsonb_build_object('headers', (
         SELECT jsonb_agg(h ORDER BY h) FROM jsonb_object_keys(x.headers::jsonb) AS h)))::text, x.body
  FROM tasks t JOIN redrive.edit x ON x.org_id = $1 AND x.task_id = t.id;
