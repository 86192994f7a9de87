-- doctor_server: what server this is, how many of its connections are taken, and as whom we are connected. Of other
-- logins' sessions PostgreSQL may hide what they are: they count.
SELECT current_setting('server_version_num')::int AS version_num, current_setting('server_version') AS version,
       pg_is_in_recovery() AS is_standby, pg_backend_pid() AS pid, current_user::text AS login,
       (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) AS is_superuser,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most,
       (SELECT count(*)::int FROM pg_stat_activity a WHERE coalesce(a.backend_type, 'client backend') = 'client backend' AND a.usesysid IS NOT NULL
           AND a.datid IS NOT NULL) AS used,
       pg_notification_queue_usage() AS notifications,
       (SELECT setting FROM pg_settings WHERE name = 'default_transaction_read_only') AS read_only;
