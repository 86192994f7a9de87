-- alerts_told: how many messages told of incidents of these rules lately, and how many seconds ago the last one did: of those that began, and
-- of those that ended. $1 now, $2 seconds that are lately, then by rule: $3 org, $4 rule.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT r.org_id, r.rule, f.n AS fired, extract(epoch FROM clock.now - f.last_at)::float8 AS fired_s, o.n AS ended,
       extract(epoch FROM clock.now - o.last_at)::float8 AS ended_s
  FROM clock, unnest($3::uuid[], $4::text[]) AS r(org_id, rule)
 CROSS JOIN LATERAL (
   SELECT count(DISTINCT a.notice_id)::int AS n, max(a.opened_at) AS last_at FROM redrive.alert a
    WHERE a.org_id = r.org_id AND a.rule = r.rule AND a.opened_at > clock.now - make_interval(secs => $2::float8)
      AND a.opened_at <= clock.now) f
 CROSS JOIN LATERAL (
   SELECT count(DISTINCT a.over_notice_id)::int AS n, max(a.over_at) AS last_at FROM redrive.alert a
    WHERE a.org_id = r.org_id AND a.rule = r.rule AND a.over_at > clock.now - make_interval(secs => $2::float8)
      AND a.over_at <= clock.now) o;
