-- count_bound_types: how many event types other policies are bound to: every accept looks through them. $1 org, $2 name.
SELECT coalesce(sum(cardinality(event_types)), 0)::int AS n
  FROM redrive.policy WHERE org_id = $1 AND retired_at IS NULL AND name <> $2 AND (is_default OR event_types <> '{}');
