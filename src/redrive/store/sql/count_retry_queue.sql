-- count_retry_queue: what a filter matches, where that is known after a look at so many entries as $8; else NULL. $1 to $7 as for
-- the list.
SELECT CASE WHEN count(*) < $8::bigint THEN count(*) FILTER (WHERE t.matches) END AS n
  FROM (
    SELECT ($2::text IS NULL OR (t.state = 'leased') = ($2 = 'in_progress'))
             AND ($3::text IS NULL OR t.event_type LIKE $3)
             AND ($4::text IS NULL OR t.external_system = $4)
             AND ($5::uuid IS NULL OR t.endpoint_id = $5)
             AND (num_nonnulls($6::text, $7::text) = 0 OR ($6::text IS NULL AND t.event_type ILIKE $7) OR (
               SELECT ($6::text IS NULL OR f.category = $6)
                      AND ($7::text IS NULL OR f.error_message ILIKE $7 OR t.event_type ILIKE $7)
                 FROM redrive.attempt f
                WHERE f.org_id = t.org_id AND f.task_id = t.id AND f.result IN ('failed', 'lost')
                ORDER BY f.fence DESC LIMIT 1)) AS matches
      FROM redrive.task t
     WHERE t.org_id = $1 AND t.open AND t.attempts > 0
     ORDER BY t.due_at, t.id LIMIT $8) t;
