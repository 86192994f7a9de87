-- count_endpoint_states: an org has few enough to count.
SELECT count(*)::int AS total, count(*) FILTER (WHERE disabled_at IS NOT NULL)::int AS disabled,
       count(*) FILTER (WHERE paused_at IS NOT NULL)::int AS paused
  FROM redrive.endpoint WHERE org_id = $1 AND deleted_at IS NULL;
