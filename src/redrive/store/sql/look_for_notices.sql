-- look_for_notices: whether a herald has anything to do. Asked often, and most of the time there is nothing: two looks into
-- empty indexes. $1 now, $2 seconds that further ones are counted before they are told.
SELECT EXISTS (SELECT FROM redrive.notice n WHERE n.told_at IS NULL)
    OR EXISTS (SELECT FROM redrive.notice_more m
                WHERE m.since <= coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8)) AS found;
