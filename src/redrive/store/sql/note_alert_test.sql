-- note_alert_test: a notice that says it is a test; NULL where there were too many of them. $1 org, $2 now, $3 who asked for it.
SELECT redrive.note($1, 'alert.test', 'info', 'org', $1,
                    'This is a test of the alerts of Redrive. Nothing is wrong: whoever reads this gets them.',
                    jsonb_build_object('test', true, 'asked_by', $3::text), coalesce($2::timestamptz, clock_timestamp())) AS id;
