-- end_call: of a callback. $1 now, $2 org, $3 notice, $4 seconds until another one (NULL: it was the last), $5 which
-- call it was. What another process has heard meanwhile stands: this one took so long that it was made again.
UPDATE redrive.notice n SET
       called_at = CASE WHEN $4::float8 IS NULL THEN coalesce($1::timestamptz, clock_timestamp()) END,
       call_at = coalesce($1::timestamptz, clock_timestamp()) + make_interval(secs => $4::float8)
 WHERE n.org_id = $2 AND n.id = $3 AND n.called_at IS NULL AND ($4::float8 IS NULL OR n.calls = $5);
