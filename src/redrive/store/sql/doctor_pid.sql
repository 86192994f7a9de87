-- doctor_pid: which server process answers, and what time it is there.
SELECT pg_backend_pid() AS pid, clock_timestamp() AS now;
