-- count_dead_letters: what a filter matches, where that is known after a look at so many letters as $17; else NULL.
-- $1 org, $2 state, $3 to $9 filters, $10 and $11 died since and until, $12 text, $13 pattern of event types,
-- $14 event, $15 correlation id,
-- $16 the filter that chooses the index: as for the list; $18 and $19 first failed since and until.
-- A pattern asks for the message too, which is always there and in no index: else the one by type, which has all that is needed,
-- would be read to its end and sorted.
SELECT CASE WHEN count(*) < $17::bigint THEN count(*) FILTER (
         WHERE ($3::text IS NULL OR d.kind = $3)
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
           AND ($18::timestamptz IS NULL OR d.began_at >= $18) AND ($19::timestamptz IS NULL OR d.began_at < $19)) END AS n
  FROM (
    SELECT d.kind, d.event_type, d.external_system, d.endpoint_id, d.reason, d.category, d.fingerprint, d.error_message,
           d.event_id, d.correlation_id,
           CASE WHEN num_nonnulls($18::timestamptz, $19::timestamptz) > 0 THEN coalesce(d.first_failed_at, d.created_at) END AS began_at
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
     ORDER BY d.created_at DESC LIMIT $17) d;
