-- notify: tell whoever listens. $1 channel, $2 what, less than 8000 bytes.
SELECT pg_notify($1, $2);
