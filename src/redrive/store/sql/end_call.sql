-- end_call: of a callback. $1 now, $2 org, $3 notice, $4 seconds until another one (NULL: it was the last).
UPDATE redrive.notice n SET
       called_at = CASE WHEN $4::float8 IS NULL THEN coalesce($1::timestamptz, clock_timestamp()) END,
       call_at = coalesce($1::timestamptz, clock_timestamp()) + make_interval(secs => $4::float8)
 WHERE n.org_id = $2 AND n.id = $3;
