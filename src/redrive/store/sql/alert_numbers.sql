-- alert_numbers: what the rules of orgs look at, all of it kept on write. $1 now, then by org: $2 org, $3 seconds that count for what
-- failed, $4 for how long deliveries took, $5 within which a dead letter is news. A window is as many minutes of redrive.pulse as it has.
-- Letters that nobody is told of (skipped by a person, notices that failed, quiet policies) are no news here either: the newest few
-- are looked at.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT o.org_id, f.delivered, f.failed, f.waits,
       (SELECT coalesce(sum(c.n), 0)::bigint FROM redrive.counter c WHERE c.org_id = o.org_id AND c.name = 'dead.open') AS dead_letters,
       (SELECT greatest(extract(epoch FROM clock.now - d.created_at), 0)::float8
          FROM (SELECT d.task_id, d.created_at, d.reason, d.event_type FROM redrive.dead_letter d
                 WHERE d.org_id = o.org_id AND d.state = 'open' AND d.created_at > clock.now - make_interval(secs => o.quiet_s)
                 ORDER BY d.created_at DESC, d.task_id DESC LIMIT 200) d
          JOIN redrive.task t ON t.org_id = o.org_id AND t.id = d.task_id
          JOIN redrive.policy p ON p.org_id = o.org_id AND p.id = t.policy_id
         WHERE d.reason <> 'skipped' AND NOT starts_with(d.event_type, 'redrive.') AND redrive.announces(d.reason, p.spec)
         ORDER BY d.created_at DESC LIMIT 1) AS letter_age_s
  FROM clock, unnest($2::uuid[], $3::float8[], $4::float8[], $5::float8[]) AS o(org_id, failure_s, slow_s, quiet_s)
CROSS JOIN LATERAL (
   SELECT coalesce(sum(p.delivered) FILTER (WHERE p.minute > clock.now - make_interval(secs => o.failure_s)), 0)::bigint AS delivered,
          coalesce(sum(p.failed) FILTER (WHERE p.minute > clock.now - make_interval(secs => o.failure_s)), 0)::bigint AS failed,
          ARRAY[sum(w.waits[1]), sum(w.waits[2]), sum(w.waits[3]), sum(w.waits[4]), sum(w.waits[5]), sum(w.waits[6]), sum(w.waits[7]),
                sum(w.waits[8]), sum(w.waits[9]), sum(w.waits[10]), sum(w.waits[11]), sum(w.waits[12]), sum(w.waits[13]),
                sum(w.waits[14]), sum(w.waits[15]), sum(w.waits[16])]::bigint[] AS waits
     FROM redrive.pulse p
    CROSS JOIN LATERAL (SELECT CASE WHEN p.minute > clock.now - make_interval(secs => o.slow_s) THEN p.waits END AS waits) w
    WHERE p.org_id = o.org_id AND p.minute > clock.now - make_interval(secs => greatest(o.failure_s, o.slow_s))
      AND p.minute <= clock.now) f;
