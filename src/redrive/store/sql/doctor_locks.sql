-- doctor_locks: who has waited for a lock for $1 seconds or more, and who has it: of several who has it before who only waits for it, too.
-- $2 now (NULL: the database's clock).
SELECT l.pid, a.application_name AS program, l.locktype AS kind, coalesce(l.relation::regclass::text, '') AS relation, l.mode,
       extract(epoch FROM coalesce($2::timestamptz, clock_timestamp()) - l.waitstart)::float8 AS since_s,
       b.pid AS holder, b.application_name AS holder_program, b.state AS holder_state
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN LATERAL (SELECT h.* FROM unnest(pg_blocking_pids(l.pid)) k(pid) JOIN pg_stat_activity h ON h.pid = k.pid
                      ORDER BY h.wait_event_type IS NOT DISTINCT FROM 'Lock', h.pid LIMIT 1) b ON true
 WHERE NOT l.granted AND a.datname = current_database()
   AND l.waitstart <= coalesce($2::timestamptz, clock_timestamp()) - make_interval(secs => $1::float8)
 ORDER BY l.waitstart LIMIT 200;
