-- letter_arrivals: how many of the dead letters that match came when, of the newest $17. $1 to $16 as for count_dead_letters,
-- $18 the begin of the first bucket, $19 length of a bucket in seconds, $20 and $21 first failed since and until.
-- Each row tells how many letters were looked at, and when the oldest of them came; where none matches there is one row of none.
-- They are gathered as they are read, by date_bin: to reckon in seconds, or to keep them for a second look, takes twice as long.
WITH gathered AS MATERIALIZED (
  SELECT date_bin(make_interval(secs => $19::float8), l.created_at, $18::timestamptz) AS begins, count(*) AS looked,
         count(*) FILTER (WHERE l.matches)::int AS n, min(l.created_at) AS oldest
    FROM (
      SELECT d.created_at,
             ($3::text IS NULL OR d.kind = $3)
               AND ($4::text IS NULL OR d.event_type = $4)
               AND ($5::text IS NULL OR d.external_system = $5)
               AND ($6::uuid IS NULL OR d.endpoint_id = $6)
               AND ($7::text IS NULL OR d.reason = $7)
               AND ($8::text IS NULL OR d.category = $8)
               AND ($9::text IS NULL OR d.fingerprint = $9)
               AND ($14::uuid IS NULL OR d.event_id = $14)
               AND ($15::text IS NULL OR d.correlation_id = $15)
               AND ($12::text IS NULL OR d.error_message ILIKE $12 OR d.event_type ILIKE $12 OR d.correlation_id ILIKE $12
                OR d.event_id::text ILIKE $12)
               AND ($13::text IS NULL OR (d.event_type LIKE $13 AND d.error_message IS NOT NULL))
               AND ($20::timestamptz IS NULL OR coalesce(d.first_failed_at, d.created_at) >= $20)
               AND ($21::timestamptz IS NULL OR coalesce(d.first_failed_at, d.created_at) < $21) AS matches
        FROM redrive.dead_letter d
       WHERE d.org_id = $1 AND d.state = (SELECT $2::text)
         AND ($16::text IS DISTINCT FROM 'kind' OR d.kind = (SELECT $3::text))
         AND ($16::text IS DISTINCT FROM 'event_type' OR d.event_type = (SELECT $4::text))
         AND ($16::text IS DISTINCT FROM 'external_system'
              OR (d.external_system = (SELECT $5::text) AND d.external_system IS NOT NULL))
         AND ($16::text IS DISTINCT FROM 'endpoint_id' OR d.endpoint_id = (SELECT $6::uuid))
         AND ($16::text IS DISTINCT FROM 'reason' OR d.reason = (SELECT $7::text))
         AND ($16::text IS DISTINCT FROM 'category' OR d.category = (SELECT $8::text))
         AND ($16::text IS DISTINCT FROM 'fingerprint' OR d.fingerprint = (SELECT $9::text))
         AND ($16::text IS DISTINCT FROM 'event_id' OR d.event_id = (SELECT $14::uuid))
         AND ($16::text IS DISTINCT FROM 'correlation_id' OR d.correlation_id = (SELECT $15::text))
         AND ($10::timestamptz IS NULL OR d.created_at >= $10)
         AND ($11::timestamptz IS NULL OR d.created_at < $11)
       ORDER BY d.created_at DESC LIMIT $17) l
   GROUP BY 1)
SELECT round(date_part('epoch', g.begins - $18::timestamptz) / $19::float8)::int AS bucket, coalesce(g.n, 0) AS n, ended.looked,
       ended.oldest
  FROM (SELECT coalesce(sum(looked), 0)::bigint AS looked, min(oldest) AS oldest FROM gathered) ended
  LEFT JOIN gathered g ON g.n > 0;
