-- alert_numbers: what the rules of orgs look at, all of it kept on write. $1 now, then by org: $2 org, $3 seconds that count for what
-- failed, $4 for how long deliveries took. A window is whole minutes of redrive.pulse, and the one that has begun: up to a minute more than
-- was asked for, never less. What failed without saying anything of deliveries is left out. Deaths that people are told of were noted as
-- such (redrive.note_deaths), one by one or counted.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT o.org_id, f.delivered, f.failed, f.waits,
       (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c WHERE c.org_id = o.org_id AND c.name = 'dead.open') AS dead_letters,
       CASE WHEN told.at > clock.now THEN 0 ELSE extract(epoch FROM clock.now - told.at) END::float8 AS letter_age_s
  FROM clock, unnest($2::uuid[], $3::float8[], $4::float8[]) AS o(org_id, failure_s, slow_s)
CROSS JOIN LATERAL (
   SELECT coalesce(sum(p.delivered) FILTER (WHERE w.counts), 0)::bigint AS delivered,
          greatest(coalesce(sum(p.failed - p.unjudged) FILTER (WHERE w.counts), 0), 0)::bigint AS failed,
          ARRAY[sum(w.waits[1]), sum(w.waits[2]), sum(w.waits[3]), sum(w.waits[4]), sum(w.waits[5]), sum(w.waits[6]), sum(w.waits[7]),
                sum(w.waits[8]), sum(w.waits[9]), sum(w.waits[10]), sum(w.waits[11]), sum(w.waits[12]), sum(w.waits[13]),
                sum(w.waits[14]), sum(w.waits[15]), sum(w.waits[16])]::bigint[] AS waits
     FROM redrive.pulse p
    CROSS JOIN LATERAL (SELECT p.minute > clock.now - make_interval(secs => 60 + o.failure_s) AS counts,
                               CASE WHEN p.minute > clock.now - make_interval(secs => 60 + o.slow_s) THEN p.waits END AS waits) w
    WHERE p.org_id = o.org_id AND p.minute > clock.now - make_interval(secs => 60 + greatest(o.failure_s, o.slow_s))
      AND p.minute <= clock.now) f
CROSS JOIN LATERAL (
   SELECT greatest(
     (SELECT n.at FROM redrive.notice n WHERE n.org_id = o.org_id AND n.kind = 'dead_letter' ORDER BY n.at DESC, n.id DESC LIMIT 1),
     (SELECT max(m.until) FROM redrive.notice_more m WHERE m.org_id = o.org_id AND m.kind = 'dead_letter')) AS at) told;
