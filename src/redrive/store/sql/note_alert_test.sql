-- note_alert_test: a notice that says it is a test. No row where there were too many of them just now. $1 org, $2 now, $3 who asked for it.
-- Not by redrive.note: that would count what is one too many, and a minute later everybody would be told of it.
INSERT INTO redrive.notice (org_id, id, at, kind, severity, subject_kind, subject_id, text, facts)
SELECT $1, redrive.uuid7(), w.at, 'alert.test', 'info', 'org', $1,
       'This is a test of the alerts of Redrive. Nothing is wrong: whoever reads this gets them.',
       jsonb_build_object('test', true, 'asked_by', $3::text)
  FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS at) w
 WHERE redrive.notice_room($1, 'alert.test', w.at) > 0
RETURNING id;
