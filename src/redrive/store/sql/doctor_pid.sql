-- doctor_pid: which server process answers, of which database on which server, and what time it is there.
SELECT pg_backend_pid() AS pid, clock_timestamp() AS now, current_database()::text AS name, pg_postmaster_start_time() AS started_at;
