-- list_groups: dead letters by what went wrong, biggest first. $1 org, $2 state, $3 kind, $4 event type as a LIKE pattern,
-- $5 external system, $6 endpoint, $7 reason, $8 category, $9 since, $10 until, $11 limit, $12 groups looked at, $13 letters
-- counted at first in each, $14 letters counted again in all, $15 a text in the error or the event type as a LIKE pattern.
--
-- Nothing here reads all letters. The fingerprints are found by stepping from one to the next in the index; each is counted
-- up to $13, and those with more share $14 in a second count: few are big, and they are counted far. Kind, category and
-- endpoint are part of the fingerprint, so that the newest letter tells them for its group.
WITH RECURSIVE cause AS (
  (SELECT d.fingerprint, 1 AS place FROM redrive.dead_letter d
    WHERE d.org_id = $1 AND d.state = (SELECT $2::text) ORDER BY d.fingerprint LIMIT 1)
  UNION ALL
  SELECT n.fingerprint, c.place + 1
    FROM cause c CROSS JOIN LATERAL (
      SELECT d.fingerprint FROM redrive.dead_letter d
       WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint > c.fingerprint
       ORDER BY d.fingerprint LIMIT 1) n
   WHERE c.place < $12),
counted AS MATERIALIZED (
  SELECT c.fingerprint, k.seen, k.n, k.first_at, k.last_at
    FROM cause c CROSS JOIN LATERAL (
      SELECT count(*) AS seen, count(*) FILTER (WHERE x.matches) AS n,
             min(x.created_at) FILTER (WHERE x.matches) AS first_at, max(x.created_at) FILTER (WHERE x.matches) AS last_at
        FROM (SELECT d.created_at, ($4::text IS NULL OR d.event_type LIKE (SELECT $4))
                       AND ($5::text IS NULL OR d.external_system = $5) AND ($7::text IS NULL OR d.reason = $7)
                       AND ($15::text IS NULL OR d.error_message ILIKE $15 OR d.event_type ILIKE $15) AS matches
                FROM redrive.dead_letter d
               WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint = c.fingerprint
                 AND ($9::timestamptz IS NULL OR d.created_at >= $9) AND ($10::timestamptz IS NULL OR d.created_at < $10)
               ORDER BY d.created_at DESC LIMIT $13) x) k),
share AS MATERIALIZED (
  SELECT greatest($14 / greatest(count(*), 1), $13) AS most FROM counted WHERE seen = $13),
recounted AS MATERIALIZED (
  SELECT c.fingerprint, coalesce(k.n, c.n) AS n, coalesce(k.first_at, c.first_at) AS first_at,
         coalesce(k.last_at, c.last_at) AS last_at, coalesce(k.seen < share.most, true) AS is_whole
    FROM counted c CROSS JOIN share LEFT JOIN LATERAL (
      SELECT count(*) AS seen, count(*) FILTER (WHERE x.matches) AS n,
             min(x.created_at) FILTER (WHERE x.matches) AS first_at, max(x.created_at) FILTER (WHERE x.matches) AS last_at
        FROM (SELECT d.created_at, ($4::text IS NULL OR d.event_type LIKE (SELECT $4))
                       AND ($5::text IS NULL OR d.external_system = $5) AND ($7::text IS NULL OR d.reason = $7)
                       AND ($15::text IS NULL OR d.error_message ILIKE $15 OR d.event_type ILIKE $15) AS matches
                FROM redrive.dead_letter d
               WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint = c.fingerprint
                 AND ($9::timestamptz IS NULL OR d.created_at >= $9) AND ($10::timestamptz IS NULL OR d.created_at < $10)
               ORDER BY d.created_at DESC LIMIT share.most) x) k ON c.seen = $13),
shown AS MATERIALIZED (
  SELECT r.*, s.task_id AS sample_id
    FROM recounted r CROSS JOIN LATERAL (
      SELECT d.task_id, d.kind, d.category, d.endpoint_id FROM redrive.dead_letter d
       WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint = r.fingerprint AND d.created_at = r.last_at
         AND ($4::text IS NULL OR d.event_type LIKE (SELECT $4))
         AND ($5::text IS NULL OR d.external_system = $5) AND ($7::text IS NULL OR d.reason = $7)
         AND ($15::text IS NULL OR d.error_message ILIKE $15 OR d.event_type ILIKE $15)
       ORDER BY d.created_at DESC, d.task_id DESC LIMIT 1) s
   WHERE r.n > 0 AND ($3::text IS NULL OR s.kind = $3) AND ($6::uuid IS NULL OR s.endpoint_id = $6)
     AND ($8::text IS NULL OR s.category = $8))
SELECT r.fingerprint, r.n, r.is_whole, r.last_at,
       CASE WHEN r.is_whole OR num_nonnulls($4, $5, $7, $15) > 0 THEN r.first_at ELSE (
         SELECT d.created_at FROM redrive.dead_letter d
          WHERE d.org_id = $1 AND d.state = (SELECT $2::text) AND d.fingerprint = r.fingerprint
            AND ($9::timestamptz IS NULL OR d.created_at >= $9)
          ORDER BY d.created_at LIMIT 1) END AS first_at,
       d.kind, d.category, d.reason, d.event_type, d.external_system, d.endpoint_id, d.error_message, r.sample_id,
       (SELECT count(*) FROM shown)::int AS groups, (SELECT count(*) FROM cause)::int AS looked
  FROM (SELECT * FROM shown ORDER BY n DESC, last_at DESC, fingerprint LIMIT $11) r
  JOIN redrive.dead_letter d ON d.org_id = $1 AND d.task_id = r.sample_id
 ORDER BY r.n DESC, r.last_at DESC, r.fingerprint;
