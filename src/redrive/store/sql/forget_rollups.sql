-- forget_rollups: what is older than people may ask for, by span; answers how many. One look into the key for each dimension and span.
-- $1 org, $2 now, $3 spans, $4 how many seconds each of them is kept, $5 at most so many of each dimension and span.
WITH old AS MATERIALIZED (
  SELECT o.dimension, o.span, o.at, o.key
    FROM unnest(ARRAY['all', 'endpoint', 'event_type', 'external_system']) AS d(dimension)
   CROSS JOIN unnest($3::text[], $4::float8[]) AS s(span, kept_s)
   CROSS JOIN LATERAL (
     SELECT r.dimension, r.span, r.at, r.key FROM redrive.rollup r
      WHERE r.org_id = $1 AND r.dimension = d.dimension AND r.span = s.span
        AND r.at < coalesce($2::timestamptz, clock_timestamp()) - make_interval(secs => s.kept_s)
      ORDER BY r.at, r.key LIMIT $5) o),
gone AS (
  DELETE FROM redrive.rollup r USING old
   WHERE r.org_id = $1 AND r.dimension = old.dimension AND r.span = old.span AND r.at = old.at AND r.key = old.key RETURNING 1)
SELECT count(*)::int AS n FROM gone;
