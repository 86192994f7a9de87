-- tell_workers: anything may have changed, look again.
SELECT pg_notify('redrive_due', '')::text;
