-- count_retry_queue: what a filter matches, counted up to a limit; NULL beyond it.
SELECT CASE WHEN count(*) <= 10000 THEN count(*) END AS n FROM (
  SELECT FROM redrive.task t
   WHERE t.org_id = $1 AND t.open AND t.attempts > 0
     AND ($2::text IS NULL OR (t.state = 'leased' OR t.expedited) = ($2 = 'in_progress'))
     AND ($3::text IS NULL OR t.event_type = $3)
     AND ($4::text IS NULL OR t.external_system = $4)
     AND ($5::uuid IS NULL OR t.endpoint_id = $5)
   LIMIT 10001) d;
