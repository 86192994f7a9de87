-- cancel_run: nothing more of it is tried. $1 org, $2 run, $3 now (NULL: the database's clock), $4 who, $5 why.
UPDATE redrive.run SET cancelled_at = coalesce($3::timestamptz, clock_timestamp()), cancelled_by = $4, cancelled_because = $5,
       updated_at = coalesce($3::timestamptz, clock_timestamp())
 WHERE org_id = $1 AND id = $2;
