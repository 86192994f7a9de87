-- alert_numbers: what the rules of orgs look at, all of it kept on write. $1 now, then by org: $2 org, $3 seconds that count for what
-- failed, $4 for how long deliveries took that needed no retry. A window is whole minutes, and the one that has begun: up to a minute more
-- than was asked for, never less. What failed without saying anything of deliveries is left out. Deaths that people are told of were noted
-- as such (redrive.note_deaths), one by one or counted.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
asked AS MATERIALIZED (SELECT * FROM unnest($2::uuid[], $3::float8[], $4::float8[]) AS o(org_id, failure_s, slow_s)),
timed AS MATERIALIZED (
  SELECT w.org_id, array_agg(w.slot) AS slots, array_agg(w.n) AS counts
    FROM (SELECT f.org_id, u.slot, sum(u.n)::bigint AS n
            FROM (SELECT o.org_id, r.wait_slots, r.wait_firsts
                    FROM clock, asked o
                    JOIN LATERAL (
                      SELECT q.wait_slots, q.wait_firsts FROM redrive.rollup q
                       WHERE q.org_id = o.org_id AND q.dimension = 'all' AND q.span = 'minute'
                         AND q.at > clock.now - make_interval(secs => 60 + o.slow_s) AND q.at <= clock.now) r ON true
                  UNION ALL  -- read once for all orgs
                  SELECT t.org_id, t.wait_slots, t.wait_firsts FROM clock, redrive.unrolled t
                   WHERE t.org_id = ANY ($2::uuid[]) AND t.minute <= clock.now
                     AND t.minute > clock.now - make_interval(secs => 60 + ($4::float8[])[array_position($2::uuid[], t.org_id)])) f
           CROSS JOIN LATERAL unnest(f.wait_slots, f.wait_firsts) AS u(slot, n)
           WHERE u.n > 0 GROUP BY 1, 2) w
   GROUP BY 1)
SELECT o.org_id, f.delivered, f.failed, timed.slots, timed.counts,
       (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c WHERE c.org_id = o.org_id AND c.name = 'dead.open') AS dead_letters,
       CASE WHEN told.at > clock.now THEN 0 ELSE extract(epoch FROM clock.now - told.at) END::float8 AS letter_age_s
  FROM clock CROSS JOIN asked o LEFT JOIN timed ON timed.org_id = o.org_id
 CROSS JOIN LATERAL (
   SELECT coalesce(sum(p.delivered), 0)::bigint AS delivered, greatest(coalesce(sum(p.failed - p.unjudged), 0), 0)::bigint AS failed
     FROM redrive.pulse p
    WHERE p.org_id = o.org_id AND p.minute > clock.now - make_interval(secs => 60 + o.failure_s) AND p.minute <= clock.now) f
 CROSS JOIN LATERAL (
   SELECT greatest(
     (SELECT n.at FROM redrive.notice n WHERE n.org_id = o.org_id AND n.kind = 'dead_letter' ORDER BY n.at DESC, n.id DESC LIMIT 1),
     (SELECT max(m.until) FROM redrive.notice_more m WHERE m.org_id = o.org_id AND m.kind = 'dead_letter')) AS at) told;
