-- alert_subscribers: the endpoints that asked for any of these types by a pattern of Redrive's own, as notice_subscribers.sql finds them.
-- $1 org, $2 types, $3 limit.
SELECT e.id, e.name, e.kind, e.disabled_at IS NOT NULL AS is_disabled
  FROM redrive.endpoint e
 WHERE e.org_id = $1 AND e.deleted_at IS NULL
   AND EXISTS (SELECT FROM unnest(e.event_types, e.type_patterns) AS t(type, pattern)
                WHERE starts_with(t.type, 'redrive.') AND EXISTS (SELECT FROM unnest($2::text[]) AS w(type) WHERE w.type LIKE t.pattern))
 ORDER BY e.name, e.id LIMIT $3;
