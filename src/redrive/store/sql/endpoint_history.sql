-- endpoint_history: how its tries went, newest first; without the buckets in which there were none. $1 org, $2 endpoint,
-- $3 now (NULL: the database's clock), $4 since (NULL: for $5), $6 how long a bucket is in the answer, $7 at most.
SELECT date_bin($6::interval, h.bucket, '2000-01-01 00:00+00') AS at, sum(h.succeeded)::bigint AS succeeded,
       sum(h.failed)::bigint AS failed, (sum(h.took_ms) / sum(h.succeeded + h.failed))::float8 AS average_ms,
       max(h.slowest_ms) AS slowest_ms
  FROM redrive.endpoint_history h
 WHERE h.org_id = $1 AND h.endpoint_id = $2 AND h.succeeded + h.failed > 0
   AND h.bucket >= coalesce($4::timestamptz, coalesce($3::timestamptz, clock_timestamp()) - $5::interval)
 GROUP BY 1 ORDER BY 1 DESC LIMIT $7;
