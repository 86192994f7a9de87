-- doctor_untold: for how long the oldest notice has waited to be told. $1 now (NULL: the database's clock).
SELECT extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - min(n.at))::float8 AS since_s, count(*)::int AS n
  FROM (SELECT x.at FROM redrive.notice x WHERE x.told_at IS NULL ORDER BY x.at, x.id LIMIT 1000) n;
