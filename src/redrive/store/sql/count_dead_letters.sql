-- count_dead_letters: what a filter matches, counted up to a limit; NULL beyond it.
SELECT CASE WHEN count(*) <= 100000 THEN count(*) END AS n FROM (
  SELECT FROM redrive.dead_letter d
   WHERE d.org_id = $1 AND d.state = $2
     AND ($3::text IS NULL OR d.kind = $3)
     AND ($4::text IS NULL OR d.event_type = $4)
     AND ($5::text IS NULL OR d.external_system = $5)
     AND ($6::uuid IS NULL OR d.endpoint_id = $6)
     AND ($7::text IS NULL OR d.reason = $7)
     AND ($8::text IS NULL OR d.category = $8)
     AND ($9::text IS NULL OR d.fingerprint = $9)
     AND ($10::timestamptz IS NULL OR d.created_at >= $10)
     AND ($11::timestamptz IS NULL OR d.created_at < $11)
     AND ($12::text IS NULL OR d.error_message ILIKE $12 OR d.event_type ILIKE $12)
   LIMIT 100001) c;
