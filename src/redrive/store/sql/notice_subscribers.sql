-- notice_subscribers: the endpoints that asked for these event types by a pattern of Redrive's own; a mere star is none.
-- $1 orgs, $2 types. `place` counts from one.
SELECT r.place, e.id AS endpoint_id
  FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS r(org_id, type, place)
  JOIN redrive.endpoint e ON e.org_id = r.org_id AND e.deleted_at IS NULL
 WHERE EXISTS (SELECT FROM unnest(e.event_types, e.type_patterns) AS t(type, pattern)
                WHERE starts_with(t.type, 'redrive.') AND r.type LIKE t.pattern)
 ORDER BY r.place, e.id;
